#include "ops/attention.h"

#include <cmath>
#include <vector>

namespace longtune::ops::ref {
namespace {

// Keys or values of every token of one KV head as doubles, (S, D); NaN where a page is null.
template <class Stored>
std::vector<double> gathered(const KvPages& kv, std::int64_t head, std::int64_t S, bool keys) {
  std::vector<double> result;
  for (std::int64_t j = 0; j < S; ++j) {
    const std::int64_t page = j / kPageTokens;
    if (kv.pages[page] == nullptr) {
      result.insert(result.end(), static_cast<std::size_t>(kv.D), NAN);
      continue;
    }
    const auto* tile =
        reinterpret_cast<const Stored*>(keys ? kv.keys(page, head) : kv.values(page, head));
    for (std::int64_t d = 0; d < kv.D; ++d) {
      result.push_back(static_cast<float>(tile[j % kPageTokens * kv.D + d]));
    }
  }
  return result;
}

std::vector<double> gathered(const KvPages& kv, std::int64_t head, std::int64_t S, bool keys) {
  return with_float_type(
      kv.dtype, [&]<class Stored>(Stored*) { return gathered<Stored>(kv, head, S, keys); });
}

// Keys or values of one KV head in both forms, (S, D).
struct Rows {
  std::vector<double> appended, closed;
  std::int64_t D;

  Rows(const KvPages& kv, std::int64_t head, std::int64_t S, bool keys)
      : appended(gathered(kv, head, S, keys)),
        closed(gathered(kv.as_closed(), head, S, keys)),
        D(kv.D) {}

  // Row j as the query at `position` reads it.
  [[nodiscard]] const double* at(std::int64_t position, std::int64_t j) const {
    const bool own = KvPages::is_own_page(position / kPageTokens, j / kPageTokens);
    return (own ? appended : closed).data() + j * D;
  }
};

template <class Float>
double dot(const Float* row, const double* other, std::int64_t D) {
  double sum = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    sum += static_cast<double>(static_cast<float>(row[d])) * other[d];
  }
  return sum;
}

// Whether query t of head h sees token j.
struct Sight {
  const Selection& selection;
  const KvPages& kv;
  std::int64_t Hq;
  std::int64_t first_position;

  [[nodiscard]] bool sees(std::int64_t h, std::int64_t t, std::int64_t j) const {
    const std::int64_t position = first_position + t;
    if (j > position) {
      return false;
    }
    if (selection.sees_page(position / kPageTokens, j / kPageTokens)) {
      return true;
    }
    return selection.capacity > 0 && is_listed(h, t, j / selection.group_tokens);
  }

  [[nodiscard]] bool is_listed(std::int64_t h, std::int64_t t, std::int64_t group) const {
    const Selection& s = selection;
    const std::int64_t block =
        (first_position + t) / s.block_queries - first_position / s.block_queries;
    const std::int64_t list = s.lists == Hq ? h : h / (Hq / kv.Hkv);
    const std::int64_t at = block * s.lists + list;
    for (std::int64_t i = 0; i < s.counts[at]; ++i) {
      const std::uint64_t word = s.seen[(t * s.lists + list) * s.words() + i / 64];
      if (s.groups[at * s.capacity + i] == group) {
        return (word >> (i % 64) & 1) != 0;
      }
    }
    return false;
  }
};

template <class Args>
Sight sight_of(const Args& args) {
  return {.selection = args.selection,
          .kv = args.kv,
          .Hq = args.q.dim(1),
          .first_position = args.first_position};
}

template <class Float>
void forward(const AttentionForward& args) {
  const Sight sight = sight_of(args);
  const auto T = args.q.dim(0);
  const auto Hq = args.q.dim(1);
  const auto D = args.q.dim(2);
  for (std::int64_t h = 0; h < Hq; ++h) {
    const std::int64_t kv_head = h / (Hq / args.kv.Hkv);
    const Rows keys(args.kv, kv_head, args.first_position + T, true);
    const Rows values(args.kv, kv_head, args.first_position + T, false);
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t position = args.first_position + t;
      const auto* q = args.q.as<Float>() + (t * Hq + h) * D;
      const std::int64_t seen = position + 1;
      std::vector<double> scores;
      double highest = -INFINITY;
      for (std::int64_t j = 0; j < seen; ++j) {
        scores.push_back(sight.sees(h, t, j) ? args.scale * dot(q, keys.at(position, j), D)
                                             : -INFINITY);
        highest = std::max(highest, scores.back());
      }
      double sum = 0;
      for (const double score : scores) {
        sum += std::exp(score - highest);
      }
      const double lse = highest + std::log(sum);
      args.lse.as<float>()[t * Hq + h] = static_cast<float>(lse);
      for (std::int64_t d = 0; d < D; ++d) {
        double out = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          out += std::exp(scores[j] - lse) * values.at(position, j)[d];
        }
        args.out.as<Float>()[(t * Hq + h) * D + d] = Float(static_cast<float>(out));
      }
    }
  }
}

// One KV head: keys and values (S, D) and their gradients before the detached history is left out.
struct Head {
  Rows keys, values;
  std::vector<double> dk, dv;
};

template <class Float>
void backward_row(const AttentionBackward& args, std::int64_t h, std::int64_t t, Head& head) {
  const auto Hq = args.q.dim(1);
  const auto D = args.q.dim(2);
  const std::int64_t position = args.first_position + t;
  const std::int64_t row = (t * Hq + h) * D;
  const auto* q = args.q.as<Float>() + row;
  const auto* dout = args.dout.as<Float>() + row;
  const auto* out = args.out.as<Float>() + row;
  double delta = 0;
  for (std::int64_t d = 0; d < D; ++d) {
    delta += static_cast<double>(static_cast<float>(dout[d])) * static_cast<float>(out[d]);
  }
  args.delta.as<float>()[t * Hq + h] = static_cast<float>(delta);
  std::vector<double> dq(static_cast<std::size_t>(D));
  const Sight sight = sight_of(args);
  for (std::int64_t j = 0; j <= position; ++j) {
    if (!sight.sees(h, t, j)) {
      continue;
    }
    const double* key = head.keys.at(position, j);
    const double score = args.scale * dot(q, key, D);
    const double p = std::exp(score - args.lse.as<float>()[t * Hq + h]);
    const double ds = p * (dot(dout, head.values.at(position, j), D) - delta);
    for (std::int64_t d = 0; d < D; ++d) {
      dq[d] += args.scale * ds * key[d];
      head.dk[j * D + d] += args.scale * ds * static_cast<float>(q[d]);
      head.dv[j * D + d] += p * static_cast<float>(dout[d]);
    }
  }
  for (std::int64_t d = 0; d < D; ++d) {
    args.dq.as<Float>()[row + d] = Float(static_cast<float>(dq[d]));
  }
}

template <class Float>
void backward(const AttentionBackward& args) {
  const auto T = args.q.dim(0);
  const auto D = args.kv.D;
  const auto Hkv = args.kv.Hkv;
  const std::int64_t G = args.q.dim(1) / Hkv;
  const std::int64_t S = args.first_position + T;
  for (std::int64_t kv_head = 0; kv_head < Hkv; ++kv_head) {
    const auto size = static_cast<std::size_t>(S * D);
    Head head{.keys = Rows(args.kv, kv_head, S, true),
              .values = Rows(args.kv, kv_head, S, false),
              .dk = std::vector<double>(size),
              .dv = std::vector<double>(size)};
    for (std::int64_t h = kv_head * G; h < (kv_head + 1) * G; ++h) {
      for (std::int64_t t = 0; t < T; ++t) {
        backward_row<Float>(args, h, t, head);
      }
    }
    for (std::int64_t j = args.live_begin; j < S; ++j) {
      for (std::int64_t d = 0; d < D; ++d) {
        const std::int64_t target = ((j - args.live_begin) * Hkv + kv_head) * D + d;
        float& dk = args.dk.as<float>()[target];
        float& dv = args.dv.as<float>()[target];
        dk = (args.begins ? 0 : dk) + static_cast<float>(head.dk[j * D + d]);
        dv = (args.begins ? 0 : dv) + static_cast<float>(head.dv[j * D + d]);
      }
    }
  }
}

template <class Float>
void column_sums(const AttentionColumnSums& args) {
  const auto Hq = args.q.dim(1);
  const auto D = args.q.dim(2);
  const std::int64_t G = Hq / args.kv.Hkv;
  const std::int64_t S = args.sums.dim(1);
  for (std::int64_t kv_head = 0; kv_head < args.kv.Hkv; ++kv_head) {
    const Rows keys(args.kv, kv_head, S, true);
    for (std::int64_t j = 0; j < S; ++j) {
      double sum = 0;
      const std::int64_t first = std::max(args.first_row, j - args.first_position);
      for (std::int64_t t = first; t < args.end_row; ++t) {
        for (std::int64_t h = kv_head * G; h < (kv_head + 1) * G; ++h) {
          const auto* q = args.q.as<Float>() + (t * Hq + h) * D;
          const double lse = args.lse.as<float>()[t * Hq + h];
          sum += std::exp(args.scale * dot(q, keys.at(args.first_position + t, j), D) - lse);
        }
      }
      args.sums.as<float>()[kv_head * S + j] = static_cast<float>(sum / static_cast<double>(G));
    }
  }
}

}  // namespace

void attention_column_sums(const AttentionColumnSums& args) {
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { column_sums<Float>(args); });
}

void attention_forward(const AttentionForward& args) {
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void attention_backward(const AttentionBackward& args) {
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::ref
