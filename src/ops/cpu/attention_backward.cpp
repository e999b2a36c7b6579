#include <algorithm>
#include <numbers>

#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// Detached history wants dq alone, so its pages are one more loop of each block of queries. Live
// pages want dq, dk and dv from the same five products. Their tasks are pairs of a query unit i and
// a key unit j; in round r run all pairs with j = (i + r) mod n, so that no two tasks of a round
// touch the same sums, and every sum grows in the order of the rounds, whatever the threads.

constexpr std::int64_t kMaxUnitPages = 2;

// The memory of one thread, sliced.
struct Scratch {
  float* q;       // (64, padded D)
  float* dout;    // (64, padded D)
  float* q_t;     // (panels, D, 16)
  float* dout_t;  // (panels, D, 16)
  float* dq_t;    // (panels, D, 16)
  float* lse;     // (64)
  float* delta;   // (64)
  float* wide;    // (pages, 2, 64, D)
  float* dk;      // (pages, 64, padded D)
  float* dv;      // (pages, 64, padded D)

  explicit Scratch(std::int64_t D) {
    const std::int64_t rows = kBlockRows * padded_dimension(D);
    static_assert(kBlockRows == kPageTokens);
    q = thread_scratch((5 + 4 * kMaxUnitPages) * rows + 2 * kBlockRows);
    dout = q + rows;
    q_t = dout + rows;
    dout_t = q_t + rows;
    dq_t = dout_t + rows;
    wide = dq_t + rows;
    dk = wide + 2 * kMaxUnitPages * rows;
    dv = dk + kMaxUnitPages * rows;
    lse = dv + kMaxUnitPages * rows;
    delta = lse + kBlockRows;
  }
};

struct Pass {
  const AttentionBackward& args;
  const AttentionTiles& tiles;
  QuerySet set;
  std::int64_t width = padded_dimension(set.kv.D);

  // Gathers and transposes what the tiles need of a block of up to 64 rows; dq becomes zero.
  void load_block(const QueryBlock& block, const Scratch& scratch) const {
    const std::int64_t D = set.kv.D;
    const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
    const float factor = args.scale * std::numbers::log2e_v<float>;
    gather_rows(set, block, args.q, scratch.q);
    gather_rows(set, block, args.dout, scratch.dout);
    for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
      tiles.transpose(scratch.q + row * width, width, D, factor, scratch.q_t + row * D);
      tiles.transpose(scratch.dout + row * width, width, D, 1.0F, scratch.dout_t + row * D);
    }
    std::fill_n(scratch.dq_t, padded_rows * D, 0.0F);
    std::fill_n(scratch.lse, kBlockRows, kNoRow);
    std::fill_n(scratch.delta, kBlockRows, 0.0F);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      const auto [t, h] = query_row(set, block, row);
      scratch.lse[row] = args.lse.as<float>()[h * set.T + t] * std::numbers::log2e_v<float>;
      scratch.delta[row] = args.delta.as<float>()[h * set.T + t];
    }
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

  // Adds the block's dq to the sums, or begins them with it.
  void store_dq(const QueryBlock& block, const Scratch& scratch, bool add) const {
    const std::int64_t D = set.kv.D;
    for (std::int64_t row = 0; row < block.rows; row += kPanelRows) {
      tiles.untranspose(scratch.dq_t + row * D, D, scratch.q + row * width, width);
    }
    for (std::int64_t row = 0; row < block.rows; ++row) {
      const auto [t, h] = query_row(set, block, row);
      const float* source = scratch.q + row * width;
      float* target = args.dq_sum.as<float>() + (t * set.Hq + h) * D;
      for (std::int64_t d = 0; d < D; ++d) {
        target[d] = add ? target[d] + source[d] : source[d];
      }
    }
  }

  // dq of one block from the pages before the live ones.
  void history_block(const QueryBlock& block) const {
    const Scratch scratch(set.kv.D);
    load_block(block, scratch);
    BackwardTile tile = tile_of(block, scratch);
    for (std::int64_t page = 0; page < args.live_begin / kPageTokens; ++page) {
      tile.tile = load_tile(set, tiles, block.kv_head, page, scratch.wide);
      tiles.backward(tile);
    }
    store_dq(block, scratch, false);
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
  void live_pair(const QueryBlock& unit, std::int64_t first_page, std::int64_t pages) const;
};

void copy_row(float* target, const float* source, std::int64_t count) {
  std::copy_n(source, count, target);
}

void Pass::copy_gradients(std::int64_t kv_head,
                          std::int64_t page,
                          const KeyTile& tile,
                          const Scratch& scratch,
                          Copy copy) const {
  const std::int64_t D = set.kv.D;
  const std::int64_t slot = page % kMaxUnitPages;
  const std::int64_t token = page * kPageTokens - args.live_begin;
  for (std::int64_t j = 0; j < tile.count; ++j) {
    const std::int64_t row = ((token + j) * set.kv.Hkv + kv_head) * D;
    const std::int64_t scratch_row = (slot * kPageTokens + j) * width;
    float* dk = args.dk.as<float>() + row;
    float* dv = args.dv.as<float>() + row;
    if (copy == Copy::kLoad) {
      copy_row(scratch.dk + scratch_row, dk, D);
      copy_row(scratch.dv + scratch_row, dv, D);
    } else {
      copy_row(dk, scratch.dk + scratch_row, D);
      copy_row(dv, scratch.dv + scratch_row, D);
    }
  }
}

void Pass::live_block(const QueryBlock& block,
                      std::int64_t first_page,
                      const std::vector<KeyTile>& pages,
                      const Scratch& scratch) const {
  std::uint64_t seen[kBlockRows];
  causal_bits(set, block, seen);
  load_block(block, scratch);
  BackwardTile tile = tile_of(block, scratch);
  tile.q = scratch.q;
  tile.dout = scratch.dout;
  std::int64_t page = first_page;
  for (const KeyTile& keys : pages) {
    const std::int64_t slot = page % kMaxUnitPages;
    tile.tile = keys;
    tile.dk = scratch.dk + slot * kPageTokens * width;
    tile.dv = scratch.dv + slot * kPageTokens * width;
    tile.seen = page == block.page ? seen : nullptr;
    tiles.backward(tile);
    ++page;
  }
  store_dq(block, scratch, true);
}

void Pass::live_pair(const QueryBlock& unit, std::int64_t first_page, std::int64_t count) const {
  const Scratch scratch(set.kv.D);
  const std::int64_t end_page = std::min(first_page + count, unit.page + 1);
  std::vector<KeyTile> pages;
  std::fill_n(scratch.dk, 2 * kMaxUnitPages * kPageTokens * width, 0.0F);
  for (std::int64_t page = first_page; page < end_page; ++page) {
    float* wide = scratch.wide + page % kMaxUnitPages * 2 * kPageTokens * set.kv.D;
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

// How large units are follows from the shapes alone, since the order of sums does: whole pages of
// queries against two pages of keys where that makes tasks enough for many threads, smaller ones
// where not.
struct Units {
  std::vector<QueryBlock> queries;  ///< of every KV head alike
  std::int64_t key_pages;           ///< of one key unit
  std::int64_t keys;                ///< units

  explicit Units(const Pass& pass) {
    const QuerySet& set = pass.set;
    const std::int64_t query_pages = set.end_page() - set.first_page();
    const bool many = query_pages * set.kv.Hkv >= 16;
    key_pages = many ? kMaxUnitPages : 1;
    const std::int64_t rows = many ? kPageTokens * set.group() : kBlockRows;
    for (std::int64_t page = set.first_page(); page < set.end_page(); ++page) {
      append_blocks(set, 0, page, rows, queries);
    }
    const std::int64_t live_pages = set.end_page() - pass.args.live_begin / kPageTokens;
    keys = (live_pages + key_pages - 1) / key_pages;
  }
};

void live_pass(const Pass& pass) {
  const Units units(pass);
  const std::int64_t Hkv = pass.set.kv.Hkv;
  const auto query_units = static_cast<std::int64_t>(units.queries.size());
  const std::int64_t rounds = std::max(query_units, units.keys);
  const std::int64_t first_page = pass.args.live_begin / kPageTokens;
#pragma omp parallel
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t task = 0; task < query_units * Hkv; ++task) {
      const std::int64_t i = task / Hkv;
      const std::int64_t j = (i + round) % rounds;
      QueryBlock unit = units.queries[static_cast<std::size_t>(i)];
      unit.kv_head = task % Hkv;
      const std::int64_t page = first_page + j * units.key_pages;
      if (j < units.keys && page <= unit.page) {
        pass.live_pair(unit, page, units.key_pages);
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
