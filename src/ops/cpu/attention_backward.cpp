#include <omp.h>

#include <algorithm>
#include <cstring>
#include <numbers>

#include "base/bytes.h"
#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// Detached history wants dq alone, so its pages are one more loop of each block of queries. Live
// pages want dq, dk and dv from the same five products. Their tasks are pairs of a query unit i and
// a key unit j; in round r run all pairs with i + j = r, so that no two tasks of a round touch the
// same sums. Every dq then grows in the order of its keys and every dk and dv in the order of the
// queries, from where the task before left it: neither threads nor the size of units matter.

// Pages of one key unit: each serves the queries that were gathered for the first.
constexpr std::int64_t kUnitPages = 2;

// The memory of one thread, sliced.
struct Scratch {
  float* rows;    // (64, padded D)
  float* q;       // (padded D / 16, 64, 16)
  float* dout;    // (padded D / 16, 64, 16)
  float* q_t;     // (panels, D, 16)
  float* dout_t;  // (panels, D, 16)
  float* dq_t;    // (panels, D, 16)
  float* lse;     // (64)
  float* delta;   // (64)
  float* wide;    // (pages, 2, 64, D)
  float* dk;      // (pages, padded D / 16, 64, 16)
  float* dv;      // (pages, padded D / 16, 64, 16)

  explicit Scratch(std::int64_t D) {
    const std::int64_t tile = kBlockRows * padded_dimension(D);
    static_assert(kBlockRows == kPageTokens);
    rows = thread_scratch((6 + 4 * kUnitPages) * tile + 2 * kBlockRows);
    q = rows + tile;
    dout = q + tile;
    q_t = dout + tile;
    dout_t = q_t + tile;
    dq_t = dout_t + tile;
    wide = dq_t + tile;
    dk = wide + 2 * kUnitPages * tile;
    dv = dk + kUnitPages * tile;
    lse = dv + kUnitPages * tile;
    delta = lse + kBlockRows;
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

struct Pass {
  const AttentionBackward& args;
  const AttentionTiles& tiles;
  QuerySet set;
  std::int64_t width = padded_dimension(set.kv.D);

  enum class Want : std::uint8_t { kQueryGradients, kAllGradients };

  // Gathers the rows of x and lays them out as tiles need them: transposed, and in column panels
  // where keys want gradients.
  void load_rows(const QueryBlock& block,
                 const ConstTensorView& x,
                 float factor,
                 float* rows,
                 float* transposed,
                 float* panels) const {
    const std::int64_t D = set.kv.D;
    const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
    gather_rows(set, block, x, rows);
    for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
      tiles.transpose(rows + row * width, width, D, factor, transposed + row * D);
    }
    if (panels != nullptr) {
      for (std::int64_t row = 0; row < padded_rows; ++row) {
        split_row(rows + row * width, width, panels + row * kPanelRows);
      }
    }
  }

  // Readies what the tiles need of a block of up to 64 rows. dq begins at zero with the history,
  // and goes on from there with the live pages, which want all gradients.
  void load_block(const QueryBlock& block, const Scratch& scratch, Want want) const {
    const std::int64_t D = set.kv.D;
    const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
    const float factor = args.scale * std::numbers::log2e_v<float>;
    const bool all = want == Want::kAllGradients;
    load_rows(block, args.q, factor, scratch.rows, scratch.q_t, all ? scratch.q : nullptr);
    load_rows(block, args.dout, 1.0F, scratch.rows, scratch.dout_t, all ? scratch.dout : nullptr);
    if (all) {
      load_rows(block, args.dq_sum, 1.0F, scratch.rows, scratch.dq_t, nullptr);
    } else {
      std::fill_n(scratch.dq_t, padded_rows * D, 0.0F);
    }
    std::fill_n(scratch.lse, kBlockRows, kNoRow);
    std::fill_n(scratch.delta, kBlockRows, 0.0F);
    for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      scratch.lse[row] = args.lse.as<float>()[h * set.T + t] * std::numbers::log2e_v<float>;
      scratch.delta[row] = args.delta.as<float>()[h * set.T + t];
    });
  }

  [[nodiscard]] BackwardTile tile_of(const QueryBlock& block, const Scratch& scratch) const {
    return {.q_t = scratch.q_t,
            .dout_t = scratch.dout_t,
            .lse = scratch.lse,
            .delta = scratch.delta,
            .dq_t = scratch.dq_t,
            .D = set.kv.D,
            .panels = panels_of(block.rows),
            .scale = args.scale};
  }

  void store_dq(const QueryBlock& block, const Scratch& scratch) const {
    const std::int64_t D = set.kv.D;
    for (std::int64_t row = 0; row < block.rows; row += kPanelRows) {
      tiles.untranspose(scratch.dq_t + row * D, D, scratch.rows + row * width, width);
    }
    for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      std::copy_n(scratch.rows + row * width, D, args.dq_sum.as<float>() + (t * set.Hq + h) * D);
    });
  }

  // dq of one block from the pages before the live ones.
  void history_block(const QueryBlock& block) const {
    const Scratch scratch(set.kv.D);
    load_block(block, scratch, Want::kQueryGradients);
    BackwardTile tile = tile_of(block, scratch);
    for (std::int64_t page = 0; page < args.live_begin / kPageTokens; ++page) {
      tile.tile = load_tile(set, tiles, block.kv_head, page, scratch.wide);
      tiles.backward(tile);
    }
    store_dq(block, scratch);
  }

  enum class Copy : std::uint8_t { kLoad, kStore };

  // Between dk and dv of a live page's tokens and their scratch tiles.
  void copy_gradients(std::int64_t kv_head,
                      std::int64_t page,
                      const KeyTile& tile,
                      const Scratch& scratch,
                      Copy copy) const;
  void live_block(const QueryBlock& block,
                  std::int64_t first_page,
                  const std::vector<KeyTile>& pages,
                  const Scratch& scratch) const;
  void live_pair(const QueryBlock& unit, std::int64_t first_page) const;
};

void Pass::copy_gradients(std::int64_t kv_head,
                          std::int64_t page,
                          const KeyTile& tile,
                          const Scratch& scratch,
                          Copy copy) const {
  const std::int64_t D = set.kv.D;
  const std::int64_t slot = page % kUnitPages;
  const std::int64_t token = page * kPageTokens - args.live_begin;
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const std::int64_t row = ((token + j) * set.kv.Hkv + kv_head) * D;
    const std::int64_t place = slot * kPageTokens * width + j * kPanelRows;
    float* dk = args.dk.as<float>() + row;
    float* dv = args.dv.as<float>() + row;
    if (copy == Copy::kLoad) {
      split_row(dk, D, scratch.dk + place);
      split_row(dv, D, scratch.dv + place);
    } else {
      join_row(scratch.dk + place, D, dk);
      join_row(scratch.dv + place, D, dv);
    }
  }
}

void Pass::live_block(const QueryBlock& block,
                      std::int64_t first_page,
                      const std::vector<KeyTile>& pages,
                      const Scratch& scratch) const {
  std::uint64_t seen[kBlockRows];
  causal_bits(set, block, seen);
  load_block(block, scratch, Want::kAllGradients);
  BackwardTile tile = tile_of(block, scratch);
  tile.q = scratch.q;
  tile.dout = scratch.dout;
  std::int64_t page = first_page;
  for (const KeyTile& keys : pages) {
    const std::int64_t slot = page % kUnitPages;
    tile.tile = keys;
    tile.dk = scratch.dk + slot * kPageTokens * width;
    tile.dv = scratch.dv + slot * kPageTokens * width;
    tile.seen = page == block.page ? seen : nullptr;
    tiles.backward(tile);
    ++page;
  }
  store_dq(block, scratch);
}

void Pass::live_pair(const QueryBlock& unit, std::int64_t first_page) const {
  const Scratch scratch(set.kv.D);
  const std::int64_t end_page = std::min(first_page + kUnitPages, unit.page + 1);
  std::vector<KeyTile> pages;
  for (std::int64_t page = first_page; page < end_page; ++page) {
    float* wide = scratch.wide + page % kUnitPages * 2 * kPageTokens * set.kv.D;
    pages.push_back(load_tile(set, tiles, unit.kv_head, page, wide));
    copy_gradients(unit.kv_head, page, pages.back(), scratch, Copy::kLoad);
  }
  for (std::int64_t row = 0; row < unit.rows; row += kBlockRows) {
    QueryBlock block = unit;
    block.first += row;
    block.rows = std::min(kBlockRows, unit.rows - row);
    live_block(block, first_page, pages, scratch);
  }
  for (std::int64_t page = first_page; page < end_page; ++page) {
    copy_gradients(unit.kv_head,
                   page,
                   pages[static_cast<std::size_t>(page - first_page)],
                   scratch,
                   Copy::kStore);
  }
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
    args.delta.as<float>()[row % set.Hq * set.T + row / set.Hq] = sum;
  }
}

template <class Float>
void round_dq(const AttentionBackward& args) {
  const auto* sums = args.dq_sum.as<float>();
  auto* dq = args.dq.as<Float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < args.dq.elements(); ++i) {
    dq[i] = Float(sums[i]);
  }
}

void history_pass(const Pass& pass) {
  std::vector<QueryBlock> blocks;
  for (std::int64_t page = pass.set.first_page(); page < pass.set.end_page(); ++page) {
    for (std::int64_t head = 0; head < pass.set.kv.Hkv; ++head) {
      append_blocks(pass.set, head, page, kBlockRows, blocks);
    }
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    pass.history_block(blocks[i]);
  }
}

// The query units of a KV head: whole pages, since what a task loads then serves the most, or parts
// of them where a round would have too few tasks for the threads.
std::vector<QueryBlock> query_units(const QuerySet& set) {
  const std::int64_t page_rows = kPageTokens * set.group();
  std::vector<QueryBlock> units;
  for (std::int64_t parts = 1; parts <= page_rows / kBlockRows; parts *= 2) {
    const std::int64_t rows = round_up((page_rows + parts - 1) / parts, kBlockRows);
    units.clear();
    for (std::int64_t page = set.first_page(); page < set.end_page(); ++page) {
      append_blocks(set, 0, page, rows, units);
    }
    const std::int64_t widest_round = static_cast<std::int64_t>(units.size() + 1) / 2 * set.kv.Hkv;
    if (widest_round >= 2 * static_cast<std::int64_t>(omp_get_max_threads())) {
      break;
    }
  }
  return units;
}

void live_pass(const Pass& pass) {
  const std::vector<QueryBlock> units = query_units(pass.set);
  const std::int64_t Hkv = pass.set.kv.Hkv;
  const auto queries = static_cast<std::int64_t>(units.size());
  const std::int64_t first_page = pass.args.live_begin / kPageTokens;
  const std::int64_t keys = (pass.set.end_page() - first_page + kUnitPages - 1) / kUnitPages;
#pragma omp parallel
  for (std::int64_t round = 0; round < queries + keys - 1; ++round) {
    const std::int64_t first = std::max<std::int64_t>(0, round - keys + 1);
    const std::int64_t end = std::min(queries, round + 1);
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t task = 0; task < (end - first) * Hkv; ++task) {
      QueryBlock unit = units[static_cast<std::size_t>(first + task / Hkv)];
      unit.kv_head = task % Hkv;
      const std::int64_t page = first_page + (round - first - task / Hkv) * kUnitPages;
      if (page <= unit.page) {
        pass.live_pair(unit, page);
      }
    }
  }
}

void clear(const TensorView& sums) {
  auto* values = sums.as<float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < sums.elements(); ++i) {
    values[i] = 0;
  }
}

}  // namespace

void attention_backward(const AttentionBackward& args) {
  const Pass pass{.args = args,
                  .tiles = attention_tiles(selected_isa()),
                  .set = {.kv = args.kv,
                          .T = args.q.dim(0),
                          .Hq = args.q.dim(1),
                          .first_position = args.first_position}};
  clear(args.dk);
  clear(args.dv);
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { make_delta<Float>(args, pass.set); });
  history_pass(pass);
  live_pass(pass);
  with_float_type(args.q.dtype, [&]<class Float>(Float*) { round_dq<Float>(args); });
}

}  // namespace longtune::ops::cpu
