#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// Rows that share the widening of a page; their queries and sums stay in the second-level cache.
constexpr std::int64_t kForwardRows = 128;

// The memory of one thread, sliced.
struct Scratch {
  float* rows;     // (128, padded D)
  float* q_t;      // (panels, D, 16)
  float* out_t;    // (panels, D, 16)
  float* highest;  // (128)
  float* sum;      // (128)
  float* wide;     // (2, 64, D)

  explicit Scratch(std::int64_t D) {
    const std::int64_t width = padded_dimension(D);
    rows = thread_scratch(kForwardRows * (3 * width + 2) + 2 * kPageTokens * width);
    q_t = rows + kForwardRows * width;
    out_t = q_t + kForwardRows * width;
    highest = out_t + kForwardRows * width;
    sum = highest + kForwardRows;
    wide = sum + kForwardRows;
  }
};

template <class Float>
void write_rows(const AttentionForward& args,
                const QuerySet& set,
                const QueryBlock& block,
                const Scratch& scratch) {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D);
  for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
    const float sum = scratch.sum[row];
    args.lse.as<float>()[h * set.T + t] =
        (scratch.highest[row] + std::log2(sum)) * std::numbers::ln2_v<float>;
    const float* source = scratch.rows + row * width;
    auto* target = args.out.as<Float>() + (t * set.Hq + h) * D;
    const float inverse = 1.0F / sum;
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) {
      target[d] = Float(source[d] * inverse);
    }
  });
}

void forward_block(const AttentionForward& args,
                   const AttentionTiles& tiles,
                   const QuerySet& set,
                   const QueryBlock& block) {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D);
  const std::int64_t panels = panels_of(block.rows);
  const Scratch scratch(D);
  const float factor = args.scale * std::numbers::log2e_v<float>;
  gather_rows(set, block, args.q, scratch.rows);
  for (std::int64_t row = 0; row < panels * kPanelRows; row += kPanelRows) {
    tiles.transpose(scratch.rows + row * width, width, D, factor, scratch.q_t + row * D);
  }
  std::fill_n(scratch.out_t, panels * kPanelRows * D, 0.0F);
  std::fill_n(scratch.highest, panels * kPanelRows, kNoScore);
  std::fill_n(scratch.sum, panels * kPanelRows, 0.0F);
  std::uint64_t seen[kForwardRows];
  causal_bits(set, block, seen);
  for (std::int64_t page = 0; page <= block.page; ++page) {
    const KeyTile tile = load_tile(set, tiles, block.kv_head, page, scratch.wide);
    for (std::int64_t row = 0; row < panels * kPanelRows; row += kPanelRows) {
      tiles.forward({.panel = {.q_t = scratch.q_t + row * D,
                               .out_t = scratch.out_t + row * D,
                               .highest = scratch.highest + row,
                               .sum = scratch.sum + row},
                     .tile = tile,
                     .D = D,
                     .seen = page == block.page ? seen + row : nullptr});
    }
  }
  for (std::int64_t row = 0; row < panels * kPanelRows; row += kPanelRows) {
    tiles.untranspose(scratch.out_t + row * D, D, scratch.rows + row * width, width);
  }
  with_float_type(args.out.dtype,
                  [&]<class Float>(Float*) { write_rows<Float>(args, set, block, scratch); });
}

// Blocks of all heads, those with the longest history first so that threads end together; smaller
// ones where there would be too few for the threads. No row's bits depend on that.
std::vector<QueryBlock> forward_blocks(const QuerySet& set) {
  const std::size_t wanted = 2 * static_cast<std::size_t>(omp_get_max_threads());
  std::vector<QueryBlock> blocks;
  for (std::int64_t rows = kForwardRows; rows >= kPanelRows; rows /= 2) {
    blocks.clear();
    for (std::int64_t page = set.end_page() - 1; page >= set.first_page(); --page) {
      for (std::int64_t head = 0; head < set.kv.Hkv; ++head) {
        append_blocks(set, head, page, rows, blocks);
      }
    }
    if (blocks.size() >= wanted) {
      break;
    }
  }
  return blocks;
}

}  // namespace

void attention_forward(const AttentionForward& args) {
  const QuerySet set{.kv = args.kv,
                     .T = args.q.dim(0),
                     .Hq = args.q.dim(1),
                     .first_position = args.first_position};
  const AttentionTiles& tiles = attention_tiles(selected_isa());
  const std::vector<QueryBlock> blocks = forward_blocks(set);
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    forward_block(args, tiles, set, blocks[i]);
  }
}

}  // namespace longtune::ops::cpu
