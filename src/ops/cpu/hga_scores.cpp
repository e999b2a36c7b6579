#include "ops/cpu/hga_scores.h"

#include <algorithm>
#include <limits>

namespace longtune::ops::cpu {

namespace {

// Rows (count, stride) of D values become their positive parts, and then the negative ones.
void split_signs(float* rows, std::int64_t count, std::int64_t stride, std::int64_t D) {
  for (std::int64_t row = 0; row < count; ++row) {
    float* values = rows + row * stride;
    for (std::int64_t d = 0; d < D; ++d) {
      values[D + d] = std::min(values[d], 0.0F);
      values[d] = std::max(values[d], 0.0F);
    }
  }
}

// From rows of `from` values to rows of `to`, which are no fewer, in place.
void spread_rows(float* rows, std::int64_t count, std::int64_t from, std::int64_t to) {
  for (std::int64_t row = count; row-- > 1;) {
    std::copy_backward(rows + row * from, rows + row * from + from, rows + row * to + from);
  }
}

}  // namespace

std::int64_t BlockScores::floats(const QuerySet& set, std::int64_t width, std::int64_t rows) {
  const std::int64_t padded = panels_of(rows) * kPanelRows;
  return padded * (2 * padded_dimension(set.kv.D) + padded_dimension(width)) +
         kTileKeys * (width + kPanelRows);
}

BlockScores::BlockScores(const QuerySet& set,
                         const QueryBlock& block,
                         const ConstTensorView& q,
                         std::int64_t width,
                         const AttentionTiles& tiles,
                         float* memory)
    : set_(set), block_(block), tiles_(tiles), width_(width) {
  const std::int64_t D = set.kv.D;
  const std::int64_t padded = panels_of(block.rows) * kPanelRows;
  float* rows = memory;
  std::int64_t stride = padded_dimension(D);
  q_t_ = rows + 2 * padded * stride;
  scores_ = q_t_ + padded * padded_dimension(width);
  wide_ = scores_ + kTileKeys * kPanelRows;
  gather_rows(set, block, q, rows);
  if (width > D) {
    spread_rows(rows, padded, stride, 2 * stride);
    stride *= 2;
    split_signs(rows, padded, stride, D);
  }
  for (std::int64_t row = 0; row < padded; row += kPanelRows) {
    tiles.transpose(rows + row * stride, stride, width, 1.0F, q_t_ + row * width);
  }
}

void BlockScores::score_run(const ConstTensorView& summaries,
                            std::int64_t first_row,
                            std::int64_t count,
                            float* best,
                            std::int64_t stride) {
  products_ += block_.rows * count;
  for (std::int64_t done = 0; done < count; done += kTileKeys) {
    const std::int64_t rows = std::min(kTileKeys, count - done);
    const std::int64_t at = (first_row + done) * width_;
    const float* keys = wide_;
    if (summaries.dtype == DType::kF32) {
      keys = summaries.as<float>() + at;
    } else {
      tiles_.widen(reinterpret_cast<const std::uint16_t*>(summaries.as<BFloat16>() + at),
                   rows * width_,
                   wide_);
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
    tiles_.scores(q_t_ + row * width_, keys, count, width_, scores_);
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
