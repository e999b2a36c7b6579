#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/bytes.h"
#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// Rows that share the widening of a page; their queries and sums stay in the second-level cache.
constexpr std::int64_t kForwardRows = 128;

// The memory of one thread, sliced; rows are whole panels.
struct Scratch {
  float* rows = nullptr;     // (rows, padded D), or of cells
  float* q_t = nullptr;      // (panels, D / V, 16) cells
  float* out_t = nullptr;    // (panels, D, 16)
  float* highest = nullptr;  // (rows)
  float* sum = nullptr;      // (rows)
  float* wide = nullptr;     // (2, 64, D), for load_tile

  static std::int64_t floats(std::int64_t D, std::int64_t count) {
    const std::int64_t width = padded_dimension(D);
    return panels_of(count) * kPanelRows * (3 * width + 2) + 2 * kPageTokens * width;
  }

  Scratch() = default;

  Scratch(std::int64_t D, std::int64_t count, float* memory) : rows(memory) {
    const std::int64_t width = padded_dimension(D);
    const std::int64_t padded = panels_of(count) * kPanelRows;
    q_t = rows + padded * width;
    out_t = q_t + padded * width;
    highest = out_t + padded * width;
    sum = highest + padded;
    wide = sum + padded;
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
    args.lse.as<float>()[t * set.Hq + h] =
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

// One block of queries on its way over the tiles.
class ForwardBlock {
 public:
  ForwardBlock(const AttentionForward& args,
               const AttentionTiles& tiles,
               const QuerySet& set,
               const QueryBlock& block,
               float* memory)
      : args_(args),
        tiles_(tiles),
        set_(set),
        block_(block),
        scratch_(set.kv.D, block.rows, memory) {}

  void run() const {
    begin();
    const Selection& selection = set_.selection;
    for (std::int64_t page = 0; page < selection.sinks_end(block_.page); ++page) {
      visit_page(page);
    }
    for (std::int64_t page = selection.window_begin(block_.page); page <= block_.page; ++page) {
      visit_page(page);
    }
    const GroupTiles groups(set_, block_);
    for (std::int64_t tile = 0; tile < groups.count(); ++tile) {
      visit(groups.load(tiles_, tile, TileUse::kForward, scratch_.wide),
            [&](const QueryBlock& panel, std::uint64_t* seen) { groups.bits(panel, tile, seen); });
    }
    finish();
  }

 private:
  [[nodiscard]] std::int64_t padded_rows() const { return panels_of(block_.rows) * kPanelRows; }

  void begin() const {
    const std::int64_t D = set_.kv.D;
    const std::int64_t width = padded_dimension(D) / tiles_.values;
    const std::int64_t cells = D / tiles_.values;
    gather_rows(set_, tiles_, block_, args_.q, scratch_.rows);
    for (std::int64_t row = 0; row < padded_rows(); row += kPanelRows) {
      tiles_.transpose(scratch_.rows + row * width, width, cells, scratch_.q_t + row * cells);
    }
    std::fill_n(scratch_.out_t, padded_rows() * D, 0.0F);
    std::fill_n(scratch_.highest, padded_rows(), kNoScore);
    std::fill_n(scratch_.sum, padded_rows(), 0.0F);
  }

  void visit_page(std::int64_t page) const {
    const KeyTile tile = load_tile(
        set_, tiles_, block_.kv_head, block_.page, page, TileUse::kForward, scratch_.wide);
    if (page == block_.page) {
      visit(tile, causal_bits);
    } else {
      visit(tile, nullptr);
    }
  }

  // `bits` says which keys the rows of a panel see; null: all.
  template <class Bits>
  void visit(const KeyTile& tile, Bits bits) const {
    const std::int64_t D = set_.kv.D;
    for (std::int64_t row = 0; row < padded_rows(); row += kPanelRows) {
      std::uint64_t seen[kPanelRows];
      constexpr bool kAll = std::is_same_v<Bits, std::nullptr_t>;
      if constexpr (!kAll) {
        bits(piece_of(block_, row, kPanelRows), seen);
      }
      tiles_.forward({.panel = {.q_t = scratch_.q_t + row * (D / tiles_.values),
                                .out_t = scratch_.out_t + row * D,
                                .highest = scratch_.highest + row,
                                .sum = scratch_.sum + row},
                      .tile = tile,
                      .D = D,
                      .unit = args_.scale * std::numbers::log2e_v<float>,
                      .seen = kAll ? nullptr : seen});
    }
  }

  void finish() const {
    const std::int64_t D = set_.kv.D;
    const std::int64_t width = padded_dimension(D);
    for (std::int64_t row = 0; row < padded_rows(); row += kPanelRows) {
      tiles_.untranspose(scratch_.out_t + row * D, D, scratch_.rows + row * width, width);
    }
    with_float_type(args_.out.dtype,
                    [&]<class Float>(Float*) { write_rows<Float>(args_, set_, block_, scratch_); });
  }

  const AttentionForward& args_;
  const AttentionTiles& tiles_;
  const QuerySet& set_;
  const QueryBlock& block_;
  Scratch scratch_;
};

// One block of so few queries that panels would be mostly padding: the bits of ForwardBlock.
class FewRowsBlock {
 public:
  FewRowsBlock(const AttentionForward& args,
               const AttentionTiles& tiles,
               const QuerySet& set,
               const QueryBlock& block,
               float* memory)
      : args_(args), tiles_(tiles), set_(set), block_(block) {
    const std::int64_t D = set.kv.D;
    scratch_.rows = memory;
    q_ = memory + kPanelRows * padded_dimension(D);
    std::fill_n(highest_, kPanelRows, kNoScore);
    std::fill_n(sum_, kPanelRows, 0.0F);
    gather_rows(set, tiles, block, args.q, q_);
    const std::int64_t width = padded_dimension(D) / tiles.values;
    const std::int64_t cells = D / tiles.values;
    for (std::int64_t row = 1; row < block.rows && width != cells; ++row) {
      std::copy_n(q_ + row * width, cells, q_ + row * cells);
    }
    std::fill_n(scratch_.rows, block.rows * D, 0.0F);
  }

  void run() {
    const Selection& selection = set_.selection;
    for (std::int64_t page = 0; page < selection.sinks_end(block_.page); ++page) {
      visit_page(page);
    }
    for (std::int64_t page = selection.window_begin(block_.page); page <= block_.page; ++page) {
      visit_page(page);
    }
    const GroupTiles groups(set_, block_);
    for (std::int64_t tile = 0; tile < groups.count(); ++tile) {
      FewRowsTile few = tile_of();
      groups.runs(tile, few);
      std::uint64_t seen[kPanelRows];
      groups.bits(block_, tile, seen);
      few.seen = seen;
      tiles_.forward_few(few);
    }
    finish();
  }

 private:
  [[nodiscard]] FewRowsTile tile_of() {
    return {.q = q_,
            .out = scratch_.rows,
            .highest = highest_,
            .sum = sum_,
            .rows = block_.rows,
            .D = set_.kv.D,
            .unit = args_.scale * std::numbers::log2e_v<float>,
            .bf16 = set_.kv.dtype == DType::kBf16};
  }

  void visit_page(std::int64_t page) {
    FewRowsTile few = tile_of();
    const KvPages kv = set_.kv.as_read_from(block_.page, page);
    few.runs[0] = {.keys = kv.keys(page, block_.kv_head),
                   .values = kv.values(page, block_.kv_head),
                   .count = std::min(kPageTokens, set_.end() - page * kPageTokens)};
    few.run_count = 1;
    const KvPages next = set_.kv.as_read_from(block_.page, page + 1);
    if (page < block_.page && next.pages[page + 1] != nullptr) {
      few.next_keys = next.keys(page + 1, block_.kv_head);
    }
    std::uint64_t seen[kPanelRows];
    if (page == block_.page) {
      causal_bits(block_, seen);
      few.seen = seen;
    }
    tiles_.forward_few(few);
  }

  void finish() {
    scratch_.highest = highest_;
    scratch_.sum = sum_;
    // write_rows wants whole panels apart; rows of D that is a multiple of 16 lie so already.
    const std::int64_t D = set_.kv.D;
    const std::int64_t width = padded_dimension(D);
    for (std::int64_t row = block_.rows; row-- > 1 && width != D;) {
      std::copy_backward(
          scratch_.rows + row * D, scratch_.rows + row * D + D, scratch_.rows + row * width + D);
    }
    with_float_type(args_.out.dtype,
                    [&]<class Float>(Float*) { write_rows<Float>(args_, set_, block_, scratch_); });
  }

  const AttentionForward& args_;
  const AttentionTiles& tiles_;
  const QuerySet& set_;
  const QueryBlock& block_;
  Scratch scratch_;
  float* q_;
  float highest_[kPanelRows];
  float sum_[kPanelRows];
};

void append_all_blocks(const QuerySet& set, std::int64_t rows, std::vector<QueryBlock>& blocks) {
  for (std::int64_t page = set.end_page() - 1; page >= set.first_page(); --page) {
    for (std::int64_t run = 0; run < set.head_runs(); ++run) {
      append_blocks(set, run, page, rows, blocks);
    }
  }
}

// Blocks of all heads, those with the longest history first so that threads end together; smaller
// ones where there would be too few for the threads. No row's bits depend on that. Where groups are
// listed, a block is one block of queries.
std::vector<QueryBlock> forward_blocks(const QuerySet& set) {
  const std::size_t wanted = 2 * static_cast<std::size_t>(omp_get_max_threads());
  std::vector<QueryBlock> blocks;
  if (set.has_groups()) {
    append_all_blocks(set, set.selection_rows(), blocks);
    return blocks;
  }
  for (std::int64_t rows = kForwardRows; rows >= kPanelRows; rows /= 2) {
    blocks.clear();
    append_all_blocks(set, rows, blocks);
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
                     .first_position = args.first_position,
                     .selection = args.selection};
  const AttentionTiles& tiles = tiles_for(args.q.dtype, args.kv);
  const std::vector<QueryBlock> blocks = forward_blocks(set);
  const ThreadScratch scratch(Scratch::floats(set.kv.D, most_rows(blocks)));
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].rows <= kFewRows && set.kv.D % 8 == 0) {
      FewRowsBlock(args, tiles, set, blocks[i], scratch.mine()).run();
    } else {
      ForwardBlock(args, tiles, set, blocks[i], scratch.mine()).run();
    }
  }
}

}  // namespace longtune::ops::cpu
