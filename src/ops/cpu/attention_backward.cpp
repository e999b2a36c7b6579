#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numbers>

#include "base/bytes.h"
#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// A task is a unit: a run of query rows of one KV head that walks over all tiles it sees, its
// gradient of the queries at hand throughout. Keys and values gather gradients from many units, and
// must do so in an order that does not depend on threads: the units of a KV head form a line, those
// with the longest history first, and for each page a unit waits until the one before it in the
// line, if that sees the page at all, has added its part. Tasks are taken up in the order of the
// line, so that whoever is waited for is at work already; neighbours in the line of tasks belong to
// different KV heads, and follow each other over the pages, so that waiting is rare.
//
// Groups would mix with the pages of other units in no fixed order; they have sums of their own, to
// which units add in the order of the line, and which are added to those of the pages at the end.

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

// What one call works on.
struct Pass {
  const AttentionBackward& args;
  const AttentionTiles& tiles;
  QuerySet set;
  std::vector<QueryBlock> units;  // of the first KV head, in the order of the line
  std::int64_t live_page = args.live_begin / kPageTokens;
  Turns page_turns{set.kv.Hkv * (set.end_page() - live_page)};
  Turns group_turns{set.kv.Hkv};
};

// The memory of one thread, sliced; pieces are 64 rows.
struct Scratch {
  std::int64_t piece_values;  // of the arrays over pieces
  float* rows;                // (64, padded D)
  float* q;                   // (pieces, padded D / 16, 64, 16)
  float* dout;                // (pieces, padded D / 16, 64, 16)
  float* q_t;                 // (pieces, 4, D, 16), a piece every piece_values
  float* dout_t;              // (pieces, 4, D, 16), likewise
  float* dq_t;                // (pieces, 4, D, 16), likewise
  float* lse;                 // (pieces, 64)
  float* delta;               // (pieces, 64)
  float* wide;                // (2, 64, D)
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

// Between a row of D values and its place in column panels (padded D / 16, 64, 16).

void split_row(const float* row, std::int64_t D, float* panels) {
  std::int64_t d = 0;
  for (; d + kPanelRows <= D; d += kPanelRows) {
    std::memcpy(panels + d * kBlockRows, row + d, kPanelRows * sizeof(float));
  }
  std::copy_n(row + d, D - d, panels + d * kBlockRows);
}

void join_row(const float* panels, std::int64_t D, float* row) {
  std::int64_t d = 0;
  for (; d + kPanelRows <= D; d += kPanelRows) {
    std::memcpy(row + d, panels + d * kBlockRows, kPanelRows * sizeof(float));
  }
  std::copy_n(panels + d * kBlockRows, D - d, row + d);
}

void add_row(const float* panels, std::int64_t D, float* row) {
  for (std::int64_t d = 0; d < D; ++d) {
    row[d] += panels[d / kPanelRows * kPanelRows * kBlockRows + d % kPanelRows];
  }
}

class Unit {
 public:
  // `number` in the line of its KV head.
  Unit(Pass& pass, const QueryBlock& block, std::int64_t number, float* memory)
      : pass_(pass),
        args_(pass.args),
        set_(pass.set),
        block_(block),
        number_(number),
        groups_(pass.set, block),
        width_(padded_dimension(set_.kv.D)),
        scratch_(set_.kv.D, pieces_of(block.rows), tiles_of(set_), memory) {}

  static std::int64_t scratch_floats(const QuerySet& set, std::int64_t rows) {
    return Scratch::floats(set.kv.D, pieces_of(rows), tiles_of(set));
  }

  void run() const {
    for (std::int64_t piece = 0; piece < pieces(); ++piece) {
      load(piece);
    }
    const Selection& selection = set_.selection;
    for (std::int64_t page = 0; page < selection.sinks_end(block_.page); ++page) {
      visit_page(page);
    }
    for (std::int64_t page = selection.window_begin(block_.page); page <= block_.page; ++page) {
      visit_page(page);
    }
    if (set_.has_groups()) {
      visit_groups();
    }
    for (std::int64_t piece = 0; piece < pieces(); ++piece) {
      store(piece);
    }
  }

 private:
  static std::int64_t pieces_of(std::int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

  // Tiles whose gradients are at hand together: all that a list may fill, or a page's.
  static std::int64_t tiles_of(const QuerySet& set) {
    const Selection& selection = set.selection;
    return std::max<std::int64_t>(
        1, (selection.capacity * selection.group_tokens + kTileKeys - 1) / kTileKeys);
  }

  [[nodiscard]] std::int64_t pieces() const { return pieces_of(block_.rows); }

  [[nodiscard]] QueryBlock piece_block(std::int64_t piece) const {
    return piece_of(block_, piece * kBlockRows, kBlockRows);
  }

  void load_rows(const QueryBlock& block,
                 const ConstTensorView& x,
                 float factor,
                 float* transposed,
                 float* panels) const;
  void load(std::int64_t piece) const;
  void store(std::int64_t piece) const;
  [[nodiscard]] BackwardTile tile_of(std::int64_t piece) const;
  void visit_page(std::int64_t page) const;
  void visit_live_page(std::int64_t page) const;
  void visit_groups() const;
  [[nodiscard]] bool is_live(std::int64_t tile) const;
  void add_groups(std::int64_t tile) const;

  Pass& pass_;
  const AttentionBackward& args_;
  const QuerySet& set_;
  const QueryBlock& block_;
  std::int64_t number_;
  GroupTiles groups_;
  std::int64_t width_;
  Scratch scratch_;
};

// Gathers the rows of x and lays them out as tiles need them: transposed, and in column panels.
void Unit::load_rows(const QueryBlock& block,
                     const ConstTensorView& x,
                     float factor,
                     float* transposed,
                     float* panels) const {
  const std::int64_t D = set_.kv.D;
  const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
  gather_rows(set_, block, x, scratch_.rows);
  for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
    pass_.tiles.transpose(scratch_.rows + row * width_, width_, D, factor, transposed + row * D);
  }
  for (std::int64_t row = 0; row < padded_rows; ++row) {
    split_row(scratch_.rows + row * width_, width_, panels + row * kPanelRows);
  }
}

void Unit::load(std::int64_t piece) const {
  const QueryBlock block = piece_block(piece);
  const std::int64_t at = piece * scratch_.piece_values;
  const float factor = args_.scale * std::numbers::log2e_v<float>;
  load_rows(block, args_.q, factor, scratch_.q_t + at, scratch_.q + at);
  load_rows(block, args_.dout, 1.0F, scratch_.dout_t + at, scratch_.dout + at);
  std::fill_n(scratch_.dq_t + at, scratch_.piece_values, 0.0F);
  float* lse = scratch_.lse + piece * kBlockRows;
  float* delta = scratch_.delta + piece * kBlockRows;
  std::fill_n(lse, kBlockRows, kNoRow);
  std::fill_n(delta, kBlockRows, 0.0F);
  for_each_row(set_, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
    lse[row] = args_.lse.as<float>()[t * set_.Hq + h] * std::numbers::log2e_v<float>;
    delta[row] = args_.delta.as<float>()[t * set_.Hq + h];
  });
}

void Unit::store(std::int64_t piece) const {
  const std::int64_t D = set_.kv.D;
  const QueryBlock block = piece_block(piece);
  const float* dq_t = scratch_.dq_t + piece * scratch_.piece_values;
  for (std::int64_t row = 0; row < block.rows; row += kPanelRows) {
    pass_.tiles.untranspose(dq_t + row * D, D, scratch_.rows + row * width_, width_);
  }
  with_float_type(args_.dq.dtype, [&]<class Float>(Float*) {
    for_each_row(set_, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      const float* from = scratch_.rows + row * width_;
      auto* to = args_.dq.as<Float>() + (t * set_.Hq + h) * D;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) {
        to[d] = Float(from[d]);
      }
    });
  });
}

BackwardTile Unit::tile_of(std::int64_t piece) const {
  const std::int64_t at = piece * scratch_.piece_values;
  return {.q_t = scratch_.q_t + at,
          .dout_t = scratch_.dout_t + at,
          .lse = scratch_.lse + piece * kBlockRows,
          .delta = scratch_.delta + piece * kBlockRows,
          .dq_t = scratch_.dq_t + at,
          .D = set_.kv.D,
          .panels = panels_of(piece_block(piece).rows),
          .scale = args_.scale,
          .q = scratch_.q + at,
          .dout = scratch_.dout + at};
}

void Unit::visit_page(std::int64_t page) const {
  if (page >= pass_.live_page) {
    visit_live_page(page);
    return;
  }
  const KeyTile keys = load_tile(set_, pass_.tiles, block_.kv_head, page, scratch_.wide);
  for (std::int64_t piece = 0; piece < pieces(); ++piece) {
    BackwardTile tile = tile_of(piece);
    tile.tile = keys;
    pass_.tiles.backward(tile);
  }
}

void Unit::visit_live_page(std::int64_t page) const {
  const std::int64_t D = set_.kv.D;
  const KeyTile keys = load_tile(set_, pass_.tiles, block_.kv_head, page, scratch_.wide);
  const std::int64_t live_pages = set_.end_page() - pass_.live_page;
  const std::int64_t place = block_.kv_head * live_pages + page - pass_.live_page;
  const bool follows =
      number_ > 0 &&
      set_.selection.sees_page(pass_.units[static_cast<std::size_t>(number_ - 1)].page, page);
  pass_.page_turns.wait_for(place, follows ? number_ - 1 : -1);
  const auto row = [&](std::int64_t key) {
    return ((page * kPageTokens - args_.live_begin + key) * set_.kv.Hkv + block_.kv_head) * D;
  };
  for (std::int64_t key = 0; key < keys.count; ++key) {
    split_row(args_.dk.as<float>() + row(key), D, scratch_.dk + key * kPanelRows);
    split_row(args_.dv.as<float>() + row(key), D, scratch_.dv + key * kPanelRows);
  }
  std::uint64_t seen[kBlockRows];
  for (std::int64_t piece = 0; piece < pieces(); ++piece) {
    BackwardTile tile = tile_of(piece);
    tile.tile = keys;
    tile.dk = scratch_.dk;
    tile.dv = scratch_.dv;
    if (page == block_.page) {
      causal_bits(piece_block(piece), seen);
      tile.seen = seen;
    }
    pass_.tiles.backward(tile);
  }
  for (std::int64_t key = 0; key < keys.count; ++key) {
    join_row(scratch_.dk + key * kPanelRows, D, args_.dk.as<float>() + row(key));
    join_row(scratch_.dv + key * kPanelRows, D, args_.dv.as<float>() + row(key));
  }
  pass_.page_turns.done(place, number_);
}

bool Unit::is_live(std::int64_t tile) const {
  bool result = false;
  groups_.for_each_group(
      tile, [&](std::int64_t token, std::int64_t) { result |= token >= args_.live_begin; });
  return result;
}

void Unit::visit_groups() const {
  std::uint64_t seen[kBlockRows];
  for (std::int64_t i = 0; i < groups_.count(); ++i) {
    const KeyTile keys = groups_.load(pass_.tiles, i, scratch_.wide);
    const bool live = is_live(i);
    float* dk = scratch_.dk + i * scratch_.piece_values;
    float* dv = scratch_.dv + i * scratch_.piece_values;
    if (live) {
      std::fill_n(dk, scratch_.piece_values, 0.0F);
      std::fill_n(dv, scratch_.piece_values, 0.0F);
    }
    for (std::int64_t piece = 0; piece < pieces(); ++piece) {
      groups_.bits(piece_block(piece), i, seen);
      BackwardTile tile = tile_of(piece);
      tile.tile = keys;
      tile.seen = seen;
      tile.dk = live ? dk : nullptr;
      tile.dv = live ? dv : nullptr;
      pass_.tiles.backward(tile);
    }
  }
  pass_.group_turns.wait_for(block_.kv_head, number_ - 1);
  for (std::int64_t i = 0; i < groups_.count(); ++i) {
    if (is_live(i)) {
      add_groups(i);
    }
  }
  pass_.group_turns.done(block_.kv_head, number_);
}

void Unit::add_groups(std::int64_t tile) const {
  const std::int64_t D = set_.kv.D;
  const float* dk = scratch_.dk + tile * scratch_.piece_values;
  const float* dv = scratch_.dv + tile * scratch_.piece_values;
  groups_.for_each_group(tile, [&](std::int64_t token, std::int64_t key) {
    if (token < args_.live_begin) {
      return;
    }
    for (std::int64_t i = 0; i < set_.selection.group_tokens; ++i) {
      const std::int64_t row = ((token + i - args_.live_begin) * set_.kv.Hkv + block_.kv_head) * D;
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

// The units of up to `rows` rows of the first KV head, pages with the longest history first.
std::vector<QueryBlock> units_of(const QuerySet& set, std::int64_t rows) {
  const std::int64_t runs = set.head_runs() / set.kv.Hkv;
  std::vector<QueryBlock> units;
  for (std::int64_t page = set.end_page() - 1; page >= set.first_page(); --page) {
    for (std::int64_t run = 0; run < runs; ++run) {
      append_blocks(set, run, page, rows, units);
    }
  }
  return units;
}

// Where groups are listed, a unit is one block of queries, the last block first, so that a pass may
// be cut between any two.
std::vector<QueryBlock> units_with_groups(const QuerySet& set) {
  std::vector<QueryBlock> units = units_of(set, set.selection_rows());
  const auto end = [&](const QueryBlock& unit) { return unit.position(unit.rows - 1); };
  std::ranges::stable_sort(units, std::ranges::greater(), end);
  return units;
}

// Smaller units where there would be too few for the threads. Where groups are listed, a unit is
// one block of queries.
std::vector<QueryBlock> line_of_units(const QuerySet& set) {
  if (set.has_groups()) {
    return units_with_groups(set);
  }
  const auto wanted = 2 * static_cast<std::int64_t>(omp_get_max_threads());
  for (std::int64_t rows = kUnitRows; rows > kBlockRows; rows /= 2) {
    std::vector<QueryBlock> units = units_of(set, rows);
    if (static_cast<std::int64_t>(units.size()) * set.kv.Hkv >= wanted) {
      return units;
    }
  }
  return units_of(set, kBlockRows);
}

void run_units(Pass& pass) {
  const std::int64_t Hkv = pass.set.kv.Hkv;
  const std::int64_t tasks = static_cast<std::int64_t>(pass.units.size()) * Hkv;
  std::atomic<std::int64_t> next = 0;
  const ThreadScratch scratch(Unit::scratch_floats(pass.set, most_rows(pass.units)));
#pragma omp parallel
  for (std::int64_t task = next++; task < tasks; task = next++) {
    const std::int64_t number = task / Hkv;
    const std::int64_t kv_head = task % Hkv;
    QueryBlock block = pass.units[static_cast<std::size_t>(number)];
    block.kv_head = kv_head;
    block.head += kv_head * (pass.set.Hq / Hkv);
    Unit(pass, block, number, scratch.mine()).run();
  }
}

}  // namespace

void attention_backward(const AttentionBackward& args) {
  const QuerySet set{.kv = args.kv,
                     .T = args.q.dim(0),
                     .Hq = args.q.dim(1),
                     .first_position = args.first_position,
                     .selection = args.selection};
  Pass pass{.args = args,
            .tiles = attention_tiles(selected_isa()),
            .set = set,
            .units = line_of_units(set)};
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
