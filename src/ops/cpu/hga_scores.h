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
  /// Gathers the block's queries (T, Hq, D), for summaries of `width` values: D, or 2 D where they
  /// are bounds. `memory` has floats(set, width, most rows) values.
  BlockScores(const QuerySet& set,
              const QueryBlock& block,
              const ConstTensorView& q,
              std::int64_t width,
              const AttentionTiles& tiles,
              float* memory);

  [[nodiscard]] static std::int64_t floats(const QuerySet& set,
                                           std::int64_t width,
                                           std::int64_t rows);

  [[nodiscard]] std::int64_t queries() const { return block_.rows / block_.heads; }

  /// Products of a query and a summary made so far.
  [[nodiscard]] std::int64_t products() const { return products_; }

  /// best[query * stride + i] for `count` rows of `summaries` (rows, width), the first one
  /// `first_row`.
  void score_run(const ConstTensorView& summaries,
                 std::int64_t first_row,
                 std::int64_t count,
                 float* best,
                 std::int64_t stride);

 private:
  void score_tile(const float* keys, std::int64_t count, float* best, std::int64_t stride) const;

  const QuerySet& set_;
  const QueryBlock& block_;
  const AttentionTiles& tiles_;
  std::int64_t width_;
  std::int64_t products_ = 0;
  float* q_t_;     // (panels, width, 16)
  float* wide_;    // (64, width)
  float* scores_;  // (64, 16)
};

}  // namespace longtune::ops::cpu
