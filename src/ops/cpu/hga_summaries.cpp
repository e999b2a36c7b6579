#include "ops/hga_summaries.h"

#include "ops/attention.h"

namespace longtune::ops::cpu {
namespace {

// A run of tokens of one KV head, within a page or over several.
struct Run {
  std::int64_t head, first, count;

  // (D) key of the run's token j.
  template <class Float>
  [[nodiscard]] const Float* key(const KvPages& kv, std::int64_t j) const {
    const std::int64_t token = first + j;
    const auto* page =
        reinterpret_cast<const Float*>(kv.as_closed().keys(token / kPageTokens, head));
    return page + token % kPageTokens * kv.D;
  }
};

// The largest of each dimension, then the smallest; stored values, so nothing is rounded.
template <class Float>
void bound(const HgaSummaries& args, const Run& run, Float* summary) {
  const std::int64_t D = args.kv.D;
  const auto* first = run.key<Float>(args.kv, 0);
  float largest[kMaxHeadDimension];
  float smallest[kMaxHeadDimension];
  for (std::int64_t d = 0; d < D; ++d) {
    largest[d] = smallest[d] = static_cast<float>(first[d]);
  }
  for (std::int64_t j = 1; j < run.count; ++j) {
    const auto* key = run.key<Float>(args.kv, j);
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) {
      const auto value = static_cast<float>(key[d]);
      largest[d] = largest[d] < value ? value : largest[d];
      smallest[d] = value < smallest[d] ? value : smallest[d];
    }
  }
  for (std::int64_t d = 0; d < D; ++d) {
    summary[d] = Float(largest[d]);
    summary[D + d] = Float(smallest[d]);
  }
}

template <class Float>
void summarise(const HgaSummaries& args, const Run& run, Float* summary) {
  if (args.summary == HgaSummary::kMinMax) {
    bound(args, run, summary);
    return;
  }
  const std::int64_t D = args.kv.D;
  const std::int64_t half = D / 2;
  float sums[kMaxHeadDimension] = {};
  for (std::int64_t j = 0; j < run.count; ++j) {
    const auto* key = run.key<Float>(args.kv, j);
    const std::int64_t row = (run.count - 1) / 2 - j + args.chunk_tokens / 2;
    const float* cos = args.turns.as<float>() + row * half;
    const float* sin = args.turns.as<float>() + (args.chunk_tokens + row) * half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const auto low = static_cast<float>(key[i]);
      const auto high = static_cast<float>(key[i + half]);
      sums[i] += low * cos[i] - high * sin[i];
      sums[i + half] += high * cos[i] + low * sin[i];
    }
    for (std::int64_t d = 2 * half; d < D; ++d) {
      sums[d] += static_cast<float>(key[d]);
    }
  }
  for (std::int64_t d = 0; d < D; ++d) {
    summary[d] = Float(sums[d] / static_cast<float>(run.count));
  }
}

template <class Float>
void summarise_all(const HgaSummaries& args) {
  const std::int64_t S = summary_width(args.summary, args.kv.D);
  const std::int64_t per_chunk = args.chunk_tokens / args.group_tokens;
  const std::int64_t chunks = args.end_chunk - args.first_chunk;
#pragma omp parallel for schedule(static) if (chunks * args.kv.Hkv > 8)
  for (std::int64_t i = 0; i < chunks * args.kv.Hkv; ++i) {
    const std::int64_t head = i / chunks;
    const std::int64_t chunk = args.first_chunk + i % chunks;
    const std::int64_t first = chunk * args.chunk_tokens;
    const std::int64_t row = head * args.chunks.dim(1) + chunk;
    summarise(args, {head, first, args.chunk_tokens}, args.chunks.as<Float>() + row * S);
    for (std::int64_t g = 0; g < per_chunk; ++g) {
      summarise(args,
                {head, first + g * args.group_tokens, args.group_tokens},
                args.groups.as<Float>() + (row * per_chunk + g) * S);
    }
  }
}

}  // namespace

void hga_summaries(const HgaSummaries& args) {
  with_float_type(args.kv.dtype, [&]<class Float>(Float*) { summarise_all<Float>(args); });
}

}  // namespace longtune::ops::cpu
