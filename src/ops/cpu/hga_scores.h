#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {

/// Neighbouring rows of summaries.
struct SummaryRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

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

  /// best[query * stride + i] for the rows i of the runs of `summaries` (rows, width), one run
  /// after another.
  void score(const ConstTensorView& summaries,
             std::span<const SummaryRun> runs,
             float* best,
             std::int64_t stride);

 private:
  void load(const ConstTensorView& summaries,
            std::int64_t first,
            std::int64_t count,
            float* to) const;
  void score_tile(std::int64_t count, float* best, std::int64_t stride) const;

  const QueryBlock& block_;
  const AttentionTiles& tiles_;
  std::int64_t width_;
  std::int64_t products_ = 0;
  float* q_;       // (rows, width)
  float* scores_;  // (rows, 16)
  float* panel_;   // (width, 16)
  float* wide_;    // (64, width)
};

}  // namespace longtune::ops::cpu
