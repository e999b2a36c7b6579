#pragma once

#include <span>
#include <vector>

#include "ops/kv_pages.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// What stands for a run of keys in Hierarchical Global Attention (arXiv:2606.30709).
enum class HgaSummary : std::uint8_t {
  kMixed,   ///< the mean of the rotated keys in rotary pairs that turn fast, and in slow ones the
            ///< mean of the unrotated keys, rotated to the middle of the run
  kMean,    ///< the mean of the rotated keys
  kMinMax,  ///< the largest of each dimension of the rotated keys and the smallest: a query's score
            ///< is the highest that a key within these bounds could have
};

/// Values of a summary of keys of dimension D.
[[nodiscard]] constexpr std::int64_t summary_width(HgaSummary summary, std::int64_t D) {
  return summary == HgaSummary::kMinMax ? 2 * D : D;
}

/// The turns that bring a key to the position of its run's summary, `offset` positions on, for
/// offsets from -chunk_tokens / 2 to chunk_tokens / 2 - 1, as cosines and then sines,
/// (2, chunk_tokens, D / 2) f32. Pairs whose rotated keys are averaged as they are, those with
/// (chunk_tokens - 1) * frequency > 0.5 rad or all, are not turned.
[[nodiscard]] std::vector<float> hga_turns(std::span<const float> frequencies,
                                           HgaSummary summary,
                                           std::int64_t chunk_tokens = kPageTokens);

/// Summaries of closed chunks (one or two pages) and of their groups. For the n tokens of a run,
/// p being its first position and R(o) the turn by o positions:
///
///     summary = 1 / n * sum_j R((n - 1) / 2 - j) k[p + j]        (n - 1) / 2 rounded down
///
/// which is what HgaSummary says, for k[p + j] has been turned by p + j. Summed in f32 in order of
/// position, rounded once. For kMinMax: the largest of each dimension, then the smallest.
struct HgaSummaries {
  HgaSummary summary = HgaSummary::kMixed;
  TensorView chunks;      ///< (Hkv, C, S), S = summary_width, dtype of the pages; chunks
                          ///< [first_chunk, end_chunk) are written
  TensorView groups;      ///< (Hkv, C * chunk / group, S), dtype of the pages; likewise
  KvPages kv;             ///< keys of these chunks, rotated, which are read as closed
  ConstTensorView turns;  ///< (2, chunk, D / 2) f32, from hga_turns; not read for kMinMax
  std::int64_t chunk_tokens = kPageTokens;  ///< of a chunk: 64 or 128
  std::int64_t group_tokens = 16;           ///< 8, 16, 32 or 64
  std::int64_t first_chunk = 0;
  std::int64_t end_chunk = 0;
};

/// Throws Error kInvalidArgument where shapes, dtypes or ranges disagree.
void hga_summaries(const HgaSummaries& args);

namespace ref {
void hga_summaries(const HgaSummaries& args);
}  // namespace ref

namespace cpu {
void hga_summaries(const HgaSummaries& args);
}  // namespace cpu

}  // namespace longtune::ops
