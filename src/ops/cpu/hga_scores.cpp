#include "ops/cpu/hga_scores.h"

#include <algorithm>
#include <limits>

namespace longtune::ops::cpu {

std::int64_t BlockScores::floats(const QuerySet& set, std::int64_t width, std::int64_t rows) {
  const std::int64_t padded = panels_of(rows) * kPanelRows;
  return padded * (padded_dimension(set.kv.D) + width + kPanelRows) +
         (kTileKeys + kPanelRows) * width;
}

BlockScores::BlockScores(const QuerySet& set,
                         const QueryBlock& block,
                         const ConstTensorView& q,
                         std::int64_t width,
                         const AttentionTiles& tiles,
                         float* memory)
    : block_(block), tiles_(tiles), width_(width) {
  const std::int64_t D = set.kv.D;
  const std::int64_t padded = panels_of(block.rows) * kPanelRows;
  float* rows = memory;
  q_ = rows + padded * padded_dimension(D);
  scores_ = q_ + padded * width;
  panel_ = scores_ + padded * kPanelRows;
  wide_ = panel_ + kPanelRows * width;
  gather_rows(set, tiles, block, q, rows);
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const float* from = rows + row * padded_dimension(D);
    float* to = q_ + row * width;
    if (width == D) {
      std::copy_n(from, D, to);
      continue;
    }
    for (std::int64_t d = 0; d < D; ++d) {  // the largest are multiplied by what is positive
      to[d] = std::max(from[d], 0.0F);
      to[D + d] = std::min(from[d], 0.0F);
    }
  }
}

void BlockScores::score(const ConstTensorView& summaries,
                        std::span<const SummaryRun> runs,
                        float* best,
                        std::int64_t stride) {
  std::int64_t at_hand = 0;
  for (const SummaryRun& run : runs) {
    products_ += block_.rows * run.count;
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t count = std::min(run.count - done, kTileKeys - at_hand);
      load(summaries, run.first + done, count, wide_ + at_hand * width_);
      at_hand += count;
      done += count;
      if (at_hand == kTileKeys) {
        score_tile(at_hand, best, stride);
        best += at_hand;
        at_hand = 0;
      }
    }
  }
  score_tile(at_hand, best, stride);
}

void BlockScores::load(const ConstTensorView& summaries,
                       std::int64_t first,
                       std::int64_t count,
                       float* to) const {
  if (summaries.dtype == DType::kF32) {
    std::copy_n(summaries.as<float>() + first * width_, count * width_, to);
  } else {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(summaries.as<BFloat16>());
    tiles_.widen(bits + first * width_, count * width_, to);
  }
}

// Summaries lie along the lanes, so that the largest over the heads is taken lane by lane.
void BlockScores::score_tile(std::int64_t count, float* best, std::int64_t stride) const {
  std::fill_n(
      wide_ + count * width_, panels_of(count) * kPanelRows * width_ - count * width_, 0.0F);
  for (std::int64_t first = 0; first < count; first += kPanelRows) {
    tiles_.transpose(wide_ + first * width_, width_, width_, panel_);
    tiles_.scores(panel_, q_, block_.rows, width_, scores_);
    const std::int64_t lanes = std::min(kPanelRows, count - first);
    for (std::int64_t query = 0; query < queries(); ++query) {
      float highest[kPanelRows];
      std::fill_n(highest, kPanelRows, -std::numeric_limits<float>::infinity());
      for (std::int64_t head = 0; head < block_.heads; ++head) {
        const float* row = scores_ + (query * block_.heads + head) * kPanelRows;
        for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
          highest[lane] = row[lane] > highest[lane] ? row[lane] : highest[lane];
        }
      }
      std::copy_n(highest, lanes, best + query * stride + first);
    }
  }
}

}  // namespace longtune::ops::cpu
