#include "ops/cpu/hga_scores.h"

#include <algorithm>
#include <limits>

namespace longtune::ops::cpu {

std::int64_t BlockScores::floats(const QuerySet& set, std::int64_t rows) {
  const std::int64_t padded = panels_of(rows) * kPanelRows;
  return 2 * padded * padded_dimension(set.kv.D) + kTileKeys * (set.kv.D + kPanelRows);
}

BlockScores::BlockScores(const QuerySet& set,
                         const QueryBlock& block,
                         const ConstTensorView& q,
                         const AttentionTiles& tiles,
                         float* memory)
    : set_(set), block_(block), tiles_(tiles) {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D);
  const std::int64_t padded = panels_of(block.rows) * kPanelRows;
  float* rows = memory;
  q_t_ = rows + padded * width;
  scores_ = q_t_ + padded * width;
  wide_ = scores_ + kTileKeys * kPanelRows;
  gather_rows(set, block, q, rows);
  for (std::int64_t row = 0; row < padded; row += kPanelRows) {
    tiles.transpose(rows + row * width, width, D, 1.0F, q_t_ + row * D);
  }
}

void BlockScores::score_run(const ConstTensorView& summaries,
                            std::int64_t first_row,
                            std::int64_t count,
                            float* best,
                            std::int64_t stride) const {
  const std::int64_t D = set_.kv.D;
  for (std::int64_t done = 0; done < count; done += kTileKeys) {
    const std::int64_t rows = std::min(kTileKeys, count - done);
    const std::int64_t at = (first_row + done) * D;
    const float* keys = wide_;
    if (summaries.dtype == DType::kF32) {
      keys = summaries.as<float>() + at;
    } else {
      tiles_.widen(
          reinterpret_cast<const std::uint16_t*>(summaries.as<BFloat16>() + at), rows * D, wide_);
    }
    score_tile(keys, rows, best + done, stride);
  }
}

void BlockScores::score_tile(const float* keys,
                             std::int64_t count,
                             float* best,
                             std::int64_t stride) const {
  for (std::int64_t query = 0; query < queries(); ++query) {
    std::fill_n(best + query * stride, count, -std::numeric_limits<float>::infinity());
  }
  for (std::int64_t row = 0; row < block_.rows; row += kPanelRows) {
    tiles_.scores(q_t_ + row * set_.kv.D, keys, count, set_.kv.D, scores_);
    const std::int64_t lanes = std::min(kPanelRows, block_.rows - row);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      float* target = best + (row + lane) / block_.heads * stride;
      for (std::int64_t i = 0; i < count; ++i) {
        const float score = scores_[i * kPanelRows + lane];
        target[i] = score > target[i] ? score : target[i];
      }
    }
  }
}

}  // namespace longtune::ops::cpu
