#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {

/// Scores of the queries of one block against summaries: for a query the largest over the block's
/// heads. A score is one sum over d in order, whatever else is computed with it; what is no number
/// is minus infinity.
class BlockScores {
 public:
  /// Gathers the block's queries (T, Hq, D); `memory` has floats(set, most rows) values.
  BlockScores(const QuerySet& set,
              const QueryBlock& block,
              const ConstTensorView& q,
              const AttentionTiles& tiles,
              float* memory);

  [[nodiscard]] static std::int64_t floats(const QuerySet& set, std::int64_t rows);

  [[nodiscard]] std::int64_t queries() const { return block_.rows / block_.heads; }

  /// best[query * stride + i] for `count` rows of `summaries` (rows, D), the first one `first_row`.
  void score_run(const ConstTensorView& summaries,
                 std::int64_t first_row,
                 std::int64_t count,
                 float* best,
                 std::int64_t stride) const;

 private:
  void score_tile(const float* keys, std::int64_t count, float* best, std::int64_t stride) const;

  const QuerySet& set_;
  const QueryBlock& block_;
  const AttentionTiles& tiles_;
  float* q_t_;     // (panels, D, 16)
  float* wide_;    // (64, D)
  float* scores_;  // (64, 16)
};

}  // namespace longtune::ops::cpu
