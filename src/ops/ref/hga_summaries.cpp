#include "ops/hga_summaries.h"

#include <algorithm>
#include <vector>

namespace longtune::ops::ref {
namespace {

// The keys (count, D) of a run of tokens of one KV head.
template <class Float>
std::vector<Float> keys_of(const KvPages& kv,
                           std::int64_t head,
                           std::int64_t first,
                           std::int64_t count) {
  std::vector<Float> result;
  for (std::int64_t token = first; token < first + count; ++token) {
    const auto* page =
        reinterpret_cast<const Float*>(kv.as_closed().keys(token / kPageTokens, head));
    const auto* key = page + token % kPageTokens * kv.D;
    result.insert(result.end(), key, key + kv.D);
  }
  return result;
}

// The largest of each dimension, then the smallest.
template <class Float>
void bound(const HgaSummaries& args, const std::vector<Float>& keys, Float* summary) {
  const std::int64_t D = args.kv.D;
  const std::int64_t count = std::ssize(keys) / D;
  for (std::int64_t d = 0; d < D; ++d) {
    auto largest = static_cast<float>(keys[d]);
    float smallest = largest;
    for (std::int64_t j = 1; j < count; ++j) {
      largest = std::max(largest, static_cast<float>(keys[j * D + d]));
      smallest = std::min(smallest, static_cast<float>(keys[j * D + d]));
    }
    summary[d] = Float(largest);
    summary[D + d] = Float(smallest);
  }
}

// The summary of a run's keys (count, D).
template <class Float>
void summarise(const HgaSummaries& args, const std::vector<Float>& keys, Float* summary) {
  if (args.summary == HgaSummary::kMinMax) {
    bound(args, keys, summary);
    return;
  }
  const std::int64_t D = args.kv.D;
  const std::int64_t count = std::ssize(keys) / D;
  const std::int64_t half = D / 2;
  for (std::int64_t d = 0; d < D; ++d) {
    const bool turns = d < 2 * half;
    const std::int64_t pair = d % half;
    double sum = 0;
    for (std::int64_t j = 0; j < count; ++j) {
      const Float* key = keys.data() + j * D;
      if (!turns) {
        sum += static_cast<float>(key[d]);
        continue;
      }
      const std::int64_t row = (count - 1) / 2 - j + args.chunk_tokens / 2;
      const double cos = args.turns.as<float>()[row * half + pair];
      const double sin = args.turns.as<float>()[(args.chunk_tokens + row) * half + pair];
      const double low = static_cast<float>(key[pair]);
      const double high = static_cast<float>(key[pair + half]);
      sum += d < half ? low * cos - high * sin : high * cos + low * sin;
    }
    summary[d] = Float(static_cast<float>(sum / static_cast<double>(count)));
  }
}

template <class Float>
void summarise_all(const HgaSummaries& args) {
  const std::int64_t S = summary_width(args.summary, args.kv.D);
  const std::int64_t size = args.group_tokens;
  const std::int64_t per_chunk = args.chunk_tokens / size;
  for (std::int64_t head = 0; head < args.kv.Hkv; ++head) {
    for (std::int64_t chunk = args.first_chunk; chunk < args.end_chunk; ++chunk) {
      const std::int64_t first = chunk * args.chunk_tokens;
      const std::int64_t row = head * args.chunks.dim(1) + chunk;
      summarise(args,
                keys_of<Float>(args.kv, head, first, args.chunk_tokens),
                args.chunks.as<Float>() + row * S);
      for (std::int64_t g = 0; g < per_chunk; ++g) {
        summarise(args,
                  keys_of<Float>(args.kv, head, first + g * size, size),
                  args.groups.as<Float>() + (row * per_chunk + g) * S);
      }
    }
  }
}

}  // namespace

void hga_summaries(const HgaSummaries& args) {
  with_float_type(args.kv.dtype, [&]<class Float>(Float*) { summarise_all<Float>(args); });
}

}  // namespace longtune::ops::ref
