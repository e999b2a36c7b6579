#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numbers>
#include <span>

#include "base/bytes.h"
#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// A task is a unit: query rows of one page and one KV head that walk over all tiles they see, their
// gradient of the queries at hand throughout. Keys and values gather gradients from many units, and
// must do so in an order that does not depend on threads: the units of a KV head form a line, those
// with the longest history first, and for each page a unit waits until the one before it in the
// line, if that sees the page at all, has added its part. Tasks are taken up in the order of the
// line, so that whoever is waited for is at work already; neighbours in the line of tasks belong to
// different KV heads, and follow each other over the pages, so that waiting is rare.
//
// Groups would mix with the pages of other units in no fixed order; they have sums of their own, to
// which units add in the order of the line, and which are added to those of the pages at the end.
// With them a unit is one block of queries, or several up to kUnitRows, which share pages, where
// threads would not wait for each other then.

// Rows of a unit where no groups are listed: what is loaded of a page then serves the most.
constexpr std::int64_t kUnitRows = 4 * kBlockRows;

// The places that units wait for each other.
class Turns {
 public:
  explicit Turns(std::int64_t count) : last_(static_cast<std::size_t>(count)) {
    for (auto& last : last_) {
      last = -1;
    }
  }

  // Returns when `unit` is done with `place`; at once where it is negative.
  void wait_for(std::int64_t place, std::int64_t unit) {
    std::atomic<std::int64_t>& last = last_[static_cast<std::size_t>(place)];
    for (std::int64_t now = last.load(); unit >= 0 && now != unit; now = last.load()) {
      last.wait(now);
    }
  }

  void done(std::int64_t place, std::int64_t unit) {
    std::atomic<std::int64_t>& last = last_[static_cast<std::size_t>(place)];
    last = unit;
    last.notify_all();
  }

 private:
  std::vector<std::atomic<std::int64_t>> last_;
};

// Blocks [begin, end) of the line, all of one page.
struct UnitRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<UnitRange> units_of_blocks(const std::vector<QueryBlock>& blocks,
                                       std::int64_t together) {
  std::vector<UnitRange> units;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const bool begins = units.empty() || blocks[i].page != blocks[i - 1].page ||
                        i - units.back().begin >= static_cast<std::size_t>(together);
    if (begins) {
      units.push_back({.begin = i});
    }
    units.back().end = i + 1;
  }
  return units;
}

// What one call works on.
struct Pass {
  const AttentionBackward& args;
  const AttentionTiles& tiles;
  QuerySet set;
  std::vector<QueryBlock> blocks;  // of the first KV head, in the order of the line
  std::int64_t together;           // blocks of a unit, at most
  std::vector<UnitRange> units;
  std::int64_t block_pieces;  // that a block may have
  std::int64_t live_page;

  [[nodiscard]] std::int64_t page_of(std::size_t unit) const {
    return blocks[units[unit].begin].page;
  }
};

// The memory of one thread, sliced; pieces are 64 rows.
struct Scratch {
  std::int64_t piece_values;  // of the arrays over pieces
  float* rows;                // (64, padded D), or of cells and as steps
  Cell* q;                    // (pieces, padded D / 16, 64 / V, 16), a piece every piece_values
  Cell* dout;                 // (pieces, padded D / 16, 64 / V, 16), likewise
  Cell* q_t;                  // (pieces, 4, D / V, 16), likewise
  Cell* dout_t;               // (pieces, 4, D / V, 16), likewise
  float* dq_t;                // (pieces, 4, D, 16), likewise
  float* lse;                 // (pieces, 64)
  float* delta;               // (pieces, 64)
  float* wide;                // (2, 64, D), for load_tile
  float* dk;                  // (tiles, padded D / 16, 64, 16)
  float* dv;                  // (tiles, padded D / 16, 64, 16)

  static std::int64_t floats(std::int64_t D, std::int64_t pieces, std::int64_t tiles) {
    const std::int64_t tile = kBlockRows * padded_dimension(D);
    return (3 + 5 * pieces + 2 * tiles) * tile + 2 * pieces * kBlockRows;
  }

  Scratch(std::int64_t D, std::int64_t pieces, std::int64_t tiles, float* memory)
      : piece_values(kBlockRows * padded_dimension(D)), rows(memory) {
    static_assert(kBlockRows == kPageTokens);
    const std::int64_t tile = piece_values;
    q = rows + tile;
    dout = q + pieces * tile;
    q_t = dout + pieces * tile;
    dout_t = q_t + pieces * tile;
    dq_t = dout_t + pieces * tile;
    wide = dq_t + pieces * tile;
    dk = wide + 2 * tile;
    dv = dk + tiles * tile;
    lse = dv + tiles * tile;
    delta = lse + pieces * kBlockRows;
  }
};

// Between a row of D values and its place in column panels (padded D / 16, 64, 16); `rows` of a
// panel may be others.

void split_row(const float* row, std::int64_t D, float* panels, std::int64_t rows = kBlockRows) {
  std::int64_t d = 0;
  for (; d + kPanelRows <= D; d += kPanelRows) {
    std::memcpy(panels + d * rows, row + d, kPanelRows * sizeof(float));
  }
  std::copy_n(row + d, D - d, panels + d * rows);
}

void join_row(const float* panels, std::int64_t D, float* row) {
  std::int64_t d = 0;
  for (; d + kPanelRows <= D; d += kPanelRows) {
    std::memcpy(row + d, panels + d * kBlockRows, kPanelRows * sizeof(float));
  }
  std::copy_n(panels + d * kBlockRows, D - d, row + d);
}

void add_row(const float* panels, std::int64_t D, float* row) {
  std::int64_t d = 0;
  for (; d + kPanelRows <= D; d += kPanelRows) {
#pragma omp simd
    for (std::int64_t i = 0; i < kPanelRows; ++i) {
      row[d + i] += panels[d * kBlockRows + i];
    }
  }
  for (std::int64_t i = 0; d + i < D; ++i) {
    row[d + i] += panels[d * kBlockRows + i];
  }
}

class Unit {
 public:
  // `number` in the line of the KV head.
  Unit(const Pass& pass,
       Turns& page_turns,
       Turns& group_turns,
       std::size_t number,
       std::int64_t kv_head,
       float* memory)
      : pass_(pass),
        args_(pass.args),
        set_(pass.set),
        page_turns_(page_turns),
        group_turns_(group_turns),
        number_(static_cast<std::int64_t>(number)),
        kv_head_(kv_head),
        blocks_(std::span(pass.blocks)
                    .subspan(pass.units[number].begin,
                             pass.units[number].end - pass.units[number].begin)),
        page_(blocks_.front().page),
        width_(padded_dimension(set_.kv.D)),
        scratch_(set_.kv.D, pass.block_pieces * pass.together, tiles_of(set_), memory) {}

  static std::int64_t scratch_floats(const Pass& pass) {
    return Scratch::floats(pass.set.kv.D, pass.block_pieces * pass.together, tiles_of(pass.set));
  }

  void run() const {
    for_each_piece([&](const Piece& piece) { load(piece); });
    const Selection& selection = set_.selection;
    for (std::int64_t page = 0; page < selection.sinks_end(page_); ++page) {
      visit_page(page);
    }
    for (std::int64_t page = selection.window_begin(page_); page <= page_; ++page) {
      visit_page(page);
    }
    if (set_.has_groups()) {
      visit_groups();
    }
    for_each_piece([&](const Piece& piece) { store(piece); });
  }

 private:
  // Up to kBlockRows rows of a block, and their place in the scratch memory.
  struct Piece {
    QueryBlock block;
    std::int64_t place = 0;
  };

  // Tiles whose gradients are at hand together: all that a list may fill, or a page's.
  static std::int64_t tiles_of(const QuerySet& set) {
    const Selection& selection = set.selection;
    return std::max<std::int64_t>(
        1, (selection.capacity * selection.group_tokens + kTileKeys - 1) / kTileKeys);
  }

  // The block numbered `index`, of this KV head.
  [[nodiscard]] QueryBlock block_at(std::size_t index) const {
    QueryBlock block = blocks_[index];
    block.kv_head = kv_head_;
    block.head += kv_head_ * (set_.Hq / set_.kv.Hkv);
    return block;
  }

  template <class Body>
  void for_each_piece_of(std::size_t index, Body&& body) const {
    const QueryBlock block = block_at(index);
    std::int64_t place = static_cast<std::int64_t>(index) * pass_.block_pieces;
    for (std::int64_t row = 0; row < block.rows; row += kBlockRows) {
      body(Piece{.block = piece_of(block, row, kBlockRows), .place = place++});
    }
  }

  template <class Body>
  void for_each_piece(Body&& body) const {
    for (std::size_t index = 0; index < blocks_.size(); ++index) {
      for_each_piece_of(index, body);
    }
  }

  void load_rows(const QueryBlock& block,
                 const ConstTensorView& x,
                 Cell* transposed,
                 Cell* panels) const;
  void load(const Piece& piece) const;
  void store(const Piece& piece) const;
  [[nodiscard]] BackwardTile tile_of(const Piece& piece) const;
  void visit_page(std::int64_t page) const;
  void visit_live_page(std::int64_t page) const;
  void visit_groups() const;
  void visit_groups_of(std::size_t index, const GroupTiles& groups) const;
  [[nodiscard]] bool is_live(const GroupTiles& groups, std::int64_t tile) const;
  void add_groups(const GroupTiles& groups, std::int64_t tile) const;

  const Pass& pass_;
  const AttentionBackward& args_;
  const QuerySet& set_;
  Turns& page_turns_;
  Turns& group_turns_;
  std::int64_t number_;
  std::int64_t kv_head_;
  std::span<const QueryBlock> blocks_;
  std::int64_t page_;
  std::int64_t width_;
  Scratch scratch_;
};

// Gathers the rows of x and lays them out as tiles need them: transposed, and in column panels.
void Unit::load_rows(const QueryBlock& block,
                     const ConstTensorView& x,
                     Cell* transposed,
                     Cell* panels) const {
  const AttentionTiles& tiles = pass_.tiles;
  const std::int64_t width = width_ / tiles.values;
  const std::int64_t cells = set_.kv.D / tiles.values;
  const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
  gather_rows(set_, tiles, block, x, scratch_.rows);
  for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
    tiles.transpose(scratch_.rows + row * width, width, cells, transposed + row * cells);
  }
  Cell* steps = scratch_.rows;
  if (tiles.values > 1) {  // rows take the first half of the memory
    steps += kBlockRows * width;
    tiles.interleave(scratch_.rows, padded_rows, width_, steps);
  }
  for (std::int64_t step = 0; step < padded_rows / tiles.values; ++step) {
    split_row(steps + step * width_, width_, panels + step * kPanelRows, kBlockRows / tiles.values);
  }
}

void Unit::load(const Piece& piece) const {
  const std::int64_t at = piece.place * scratch_.piece_values;
  load_rows(piece.block, args_.q, scratch_.q_t + at, scratch_.q + at);
  load_rows(piece.block, args_.dout, scratch_.dout_t + at, scratch_.dout + at);
  std::fill_n(scratch_.dq_t + at, scratch_.piece_values, 0.0F);
  float* lse = scratch_.lse + piece.place * kBlockRows;
  float* delta = scratch_.delta + piece.place * kBlockRows;
  std::fill_n(lse, kBlockRows, kNoRow);
  std::fill_n(delta, kBlockRows, 0.0F);
  for_each_row(set_, piece.block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
    lse[row] = args_.lse.as<float>()[t * set_.Hq + h] * std::numbers::log2e_v<float>;
    delta[row] = args_.delta.as<float>()[t * set_.Hq + h];
  });
}

void Unit::store(const Piece& piece) const {
  const std::int64_t D = set_.kv.D;
  const float* dq_t = scratch_.dq_t + piece.place * scratch_.piece_values;
  for (std::int64_t row = 0; row < piece.block.rows; row += kPanelRows) {
    pass_.tiles.untranspose(dq_t + row * D, D, scratch_.rows + row * width_, width_);
  }
  with_float_type(args_.dq.dtype, [&]<class Float>(Float*) {
    for_each_row(set_, piece.block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      const float* from = scratch_.rows + row * width_;
      auto* to = args_.dq.as<Float>() + (t * set_.Hq + h) * D;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) {
        to[d] = Float(from[d]);
      }
    });
  });
}

BackwardTile Unit::tile_of(const Piece& piece) const {
  const std::int64_t at = piece.place * scratch_.piece_values;
  return {.q_t = scratch_.q_t + at,
          .dout_t = scratch_.dout_t + at,
          .lse = scratch_.lse + piece.place * kBlockRows,
          .delta = scratch_.delta + piece.place * kBlockRows,
          .dq_t = scratch_.dq_t + at,
          .D = set_.kv.D,
          .panels = panels_of(piece.block.rows),
          .scale = args_.scale,
          .unit = args_.scale * std::numbers::log2e_v<float>,
          .q = scratch_.q + at,
          .dout = scratch_.dout + at};
}

void Unit::visit_page(std::int64_t page) const {
  if (page >= pass_.live_page) {
    visit_live_page(page);
    return;
  }
  const KeyTile keys =
      load_tile(set_, pass_.tiles, kv_head_, page_, page, TileUse::kBackward, scratch_.wide);
  for_each_piece([&](const Piece& piece) {
    BackwardTile tile = tile_of(piece);
    tile.tile = keys;
    pass_.tiles.backward(tile);
  });
}

void Unit::visit_live_page(std::int64_t page) const {
  const std::int64_t D = set_.kv.D;
  const KeyTile keys =
      load_tile(set_, pass_.tiles, kv_head_, page_, page, TileUse::kBackward, scratch_.wide);
  const std::int64_t live_pages = set_.end_page() - pass_.live_page;
  const std::int64_t place = kv_head_ * live_pages + page - pass_.live_page;
  const bool follows =
      number_ > 0 &&
      set_.selection.sees_page(pass_.page_of(static_cast<std::size_t>(number_ - 1)), page);
  page_turns_.wait_for(place, follows ? number_ - 1 : -1);
  const auto row = [&](std::int64_t key) {
    return ((page * kPageTokens - args_.live_begin + key) * set_.kv.Hkv + kv_head_) * D;
  };
  for (std::int64_t key = 0; key < keys.count; ++key) {
    split_row(args_.dk.as<float>() + row(key), D, scratch_.dk + key * kPanelRows);
    split_row(args_.dv.as<float>() + row(key), D, scratch_.dv + key * kPanelRows);
  }
  std::uint64_t seen[kBlockRows];
  for_each_piece([&](const Piece& piece) {
    BackwardTile tile = tile_of(piece);
    tile.tile = keys;
    tile.dk = scratch_.dk;
    tile.dv = scratch_.dv;
    if (page == page_) {
      causal_bits(piece.block, seen);
      tile.seen = seen;
    }
    pass_.tiles.backward(tile);
  });
  for (std::int64_t key = 0; key < keys.count; ++key) {
    join_row(scratch_.dk + key * kPanelRows, D, args_.dk.as<float>() + row(key));
    join_row(scratch_.dv + key * kPanelRows, D, args_.dv.as<float>() + row(key));
  }
  page_turns_.done(place, number_);
}

bool Unit::is_live(const GroupTiles& groups, std::int64_t tile) const {
  bool result = false;
  groups.for_each_group(
      tile, [&](std::int64_t token, std::int64_t) { result |= token >= args_.live_begin; });
  return result;
}

void Unit::visit_groups() const {
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    const QueryBlock block = block_at(index);
    const GroupTiles groups(set_, block);
    visit_groups_of(index, groups);
    if (index == 0) {
      group_turns_.wait_for(kv_head_, number_ - 1);
    }
    for (std::int64_t tile = 0; tile < groups.count(); ++tile) {
      if (is_live(groups, tile)) {
        add_groups(groups, tile);
      }
    }
  }
  group_turns_.done(kv_head_, number_);
}

// Leaves the gradients of live groups in the scratch memory.
void Unit::visit_groups_of(std::size_t index, const GroupTiles& groups) const {
  std::uint64_t seen[kBlockRows];
  for (std::int64_t i = 0; i < groups.count(); ++i) {
    const KeyTile keys = groups.load(pass_.tiles, i, TileUse::kBackward, scratch_.wide);
    const bool live = is_live(groups, i);
    float* dk = scratch_.dk + i * scratch_.piece_values;
    float* dv = scratch_.dv + i * scratch_.piece_values;
    if (live) {
      std::fill_n(dk, scratch_.piece_values, 0.0F);
      std::fill_n(dv, scratch_.piece_values, 0.0F);
    }
    for_each_piece_of(index, [&](const Piece& piece) {
      groups.bits(piece.block, i, seen);
      BackwardTile tile = tile_of(piece);
      tile.tile = keys;
      tile.seen = seen;
      tile.dk = live ? dk : nullptr;
      tile.dv = live ? dv : nullptr;
      pass_.tiles.backward(tile);
    });
  }
}

void Unit::add_groups(const GroupTiles& groups, std::int64_t tile) const {
  const std::int64_t D = set_.kv.D;
  const float* dk = scratch_.dk + tile * scratch_.piece_values;
  const float* dv = scratch_.dv + tile * scratch_.piece_values;
  groups.for_each_group(tile, [&](std::int64_t token, std::int64_t key) {
    if (token < args_.live_begin) {
      return;
    }
    for (std::int64_t i = 0; i < set_.selection.group_tokens; ++i) {
      const std::int64_t row = ((token + i - args_.live_begin) * set_.kv.Hkv + kv_head_) * D;
      add_row(dk + (key + i) * kPanelRows, D, args_.group_dk.as<float>() + row);
      add_row(dv + (key + i) * kPanelRows, D, args_.group_dv.as<float>() + row);
    }
  });
}

template <class Float>
void make_delta(const AttentionBackward& args, const QuerySet& set) {
  constexpr std::int64_t kLanes = 16;
  const std::int64_t D = set.kv.D;
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < set.T * set.Hq; ++row) {
    const auto* dout = args.dout.as<Float>() + row * D;
    const auto* out = args.out.as<Float>() + row * D;
    float lanes[kLanes] = {};
    for (std::int64_t d = 0; d < D; ++d) {
      lanes[d % kLanes] += static_cast<float>(dout[d]) * static_cast<float>(out[d]);
    }
    float sum = 0;
    for (const float lane : lanes) {
      sum += lane;
    }
    args.delta.as<float>()[row] = sum;
  }
}

void clear(const TensorView& sums) {
  auto* values = sums.as<float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < sums.elements(); ++i) {
    values[i] = 0;
  }
}

void add(const TensorView& to, const TensorView& from) {
  auto* sums = to.as<float>();
  const auto* values = from.as<float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    sums[i] += values[i];
  }
}

// Blocks of up to `rows` rows of the first KV head, pages with the longest history first.
std::vector<QueryBlock> blocks_of(const QuerySet& set, std::int64_t rows) {
  const std::int64_t runs = set.head_runs() / set.kv.Hkv;
  std::vector<QueryBlock> blocks;
  for (std::int64_t page = set.end_page() - 1; page >= set.first_page(); --page) {
    for (std::int64_t run = 0; run < runs; ++run) {
      append_blocks(set, run, page, rows, blocks);
    }
  }
  return blocks;
}

// The last block of queries first, so that a pass may be cut between any two.
std::vector<QueryBlock> blocks_with_groups(const QuerySet& set) {
  std::vector<QueryBlock> blocks = blocks_of(set, set.selection_rows());
  const auto end = [&](const QueryBlock& block) { return block.position(block.rows - 1); };
  std::ranges::stable_sort(blocks, std::ranges::greater(), end);
  return blocks;
}

// Smaller blocks where there would be too few for the threads.
std::vector<QueryBlock> line_of_blocks(const QuerySet& set) {
  if (set.has_groups()) {
    return blocks_with_groups(set);
  }
  const auto wanted = 2 * static_cast<std::int64_t>(omp_get_max_threads());
  for (std::int64_t rows = kUnitRows; rows > kBlockRows; rows /= 2) {
    std::vector<QueryBlock> blocks = blocks_of(set, rows);
    if (static_cast<std::int64_t>(blocks.size()) * set.kv.Hkv >= wanted) {
      return blocks;
    }
  }
  return blocks_of(set, kBlockRows);
}

// Blocks of a unit: with groups as many as fill it, unless threads would wait for each other then.
std::int64_t blocks_together(const QuerySet& set) {
  const bool waits = set.kv.Hkv < omp_get_max_threads();
  return set.has_groups() && !waits ? std::max<std::int64_t>(1, kUnitRows / set.selection_rows())
                                    : 1;
}

void run_units(const Pass& pass) {
  const std::int64_t Hkv = pass.set.kv.Hkv;
  const std::int64_t tasks = static_cast<std::int64_t>(pass.units.size()) * Hkv;
  Turns page_turns(Hkv * (pass.set.end_page() - pass.live_page));
  Turns group_turns(Hkv);
  std::atomic<std::int64_t> next = 0;
  const ThreadScratch scratch(Unit::scratch_floats(pass));
#pragma omp parallel
  for (std::int64_t task = next++; task < tasks; task = next++) {
    const auto number = static_cast<std::size_t>(task / Hkv);
    Unit(pass, page_turns, group_turns, number, task % Hkv, scratch.mine()).run();
  }
}

}  // namespace

void attention_backward(const AttentionBackward& args) {
  const QuerySet set{.kv = args.kv,
                     .T = args.q.dim(0),
                     .Hq = args.q.dim(1),
                     .first_position = args.first_position,
                     .selection = args.selection};
  std::vector<QueryBlock> blocks = line_of_blocks(set);
  const std::int64_t together = blocks_together(set);
  std::vector<UnitRange> units = units_of_blocks(blocks, together);
  const std::int64_t block_pieces = (most_rows(blocks) + kBlockRows - 1) / kBlockRows;
  const Pass pass{.args = args,
                  .tiles = tiles_for(args.q.dtype, args.kv),
                  .set = set,
                  .blocks = std::move(blocks),
                  .together = together,
                  .units = std::move(units),
                  .block_pieces = block_pieces,
                  .live_page = args.live_begin / kPageTokens};
  if (args.begins) {
    clear(args.dk);
    clear(args.dv);
  }
  if (args.begins && set.has_groups()) {
    clear(args.group_dk);
    clear(args.group_dv);
  }
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { make_delta<Float>(args, set); });
  run_units(pass);
  if (args.ends && set.has_groups()) {
    add(args.dk, args.group_dk);
    add(args.dv, args.group_dv);
  }
}

}  // namespace longtune::ops::cpu
