#include "ops/cpu/attention_rows.h"

#include <omp.h>

#include <cstring>

#include "base/bytes.h"
#include "device/scratch_memory.h"

namespace longtune::ops::cpu {

void append_blocks(const QuerySet& set,
                   std::int64_t head_run,
                   std::int64_t page,
                   std::int64_t rows,
                   std::vector<QueryBlock>& blocks) {
  const std::int64_t heads = set.heads_together();
  const std::int64_t base = page * kPageTokens;
  const std::int64_t begin = std::max<std::int64_t>(0, set.first_position - base) * heads;
  const std::int64_t end = std::min(kPageTokens, set.end() - base) * heads;
  for (std::int64_t first = begin / rows * rows; first < end; first += rows) {
    const std::int64_t from = std::max(first, begin);
    blocks.push_back({.kv_head = head_run * heads / (set.Hq / set.kv.Hkv),
                      .head = head_run * heads,
                      .heads = heads,
                      .page = page,
                      .first = from,
                      .rows = std::min(first + rows, end) - from});
  }
}

QueryBlock piece_of(const QueryBlock& block, std::int64_t first, std::int64_t rows) {
  QueryBlock piece = block;
  piece.first += first;
  piece.rows = std::min(rows, block.rows - first);
  return piece;
}

const AttentionTiles& tiles_for([[maybe_unused]] DType q, [[maybe_unused]] const KvPages& kv) {
#if defined(__x86_64__)
  if (selected_isa() >= Isa::kAvx512Bf16 && q == DType::kBf16 && kv.dtype == DType::kBf16 &&
      kv.D % kPanelRows == 0) {
    return avx512_bf16_attention_tiles();
  }
#endif
  return attention_tiles(selected_isa());
}

void gather_rows(const QuerySet& set,
                 const AttentionTiles& tiles,
                 const QueryBlock& block,
                 const ConstTensorView& x,
                 Cell* rows) {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D) / tiles.values;
  std::fill_n(
      rows + block.rows * width, (panels_of(block.rows) * kPanelRows - block.rows) * width, 0.0F);
  if (tiles.values > 1) {  // of which D has whole ones
    for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      std::memcpy(rows + row * width,
                  x.as<BFloat16>() + (t * set.Hq + h) * D,
                  static_cast<std::size_t>(width) * sizeof(Cell));
    });
    return;
  }
  with_float_type(x.dtype, [&]<class Float>(Float*) {
    for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      const auto* source = x.as<Float>() + (t * set.Hq + h) * D;
      float* target = rows + row * width;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) {
        target[d] = static_cast<float>(source[d]);
      }
      for (std::int64_t d = D; d < width; ++d) {
        target[d] = 0;
      }
    });
  });
}

void causal_bits(const QueryBlock& block, std::uint64_t* seen) {
  const std::int64_t base = block.page * kPageTokens;
  std::fill_n(seen, panels_of(block.rows) * kPanelRows, std::uint64_t{1});
  for (std::int64_t row = 0; row < block.rows; ++row) {
    seen[row] = ~std::uint64_t{0} >> (kPageTokens - 1 - (block.position(row) - base));
  }
}

namespace {

KeyTile tile_of_floats(const float* keys, const float* values, std::int64_t count) {
  return {.keys = keys, .values = values, .key_steps = keys, .value_steps = values, .count = count};
}

}  // namespace

KeyTile load_tile(const QuerySet& set,
                  const AttentionTiles& tiles,
                  std::int64_t kv_head,
                  std::int64_t query_page,
                  std::int64_t page,
                  TileUse use,
                  float* wide) {
  const KvPages kv = set.kv.as_read_from(query_page, page);
  const std::byte* keys = kv.keys(page, kv_head);
  const std::byte* values = kv.values(page, kv_head);
  const std::int64_t count = std::min(kPageTokens, set.end() - page * kPageTokens);
  if (tiles.values > 1) {
    KeyTile tile{.keys = reinterpret_cast<const Cell*>(keys),
                 .values = reinterpret_cast<const Cell*>(values),
                 .key_steps = wide,
                 .value_steps = wide,
                 .count = count};
    if (use != TileUse::kColumnSums) {
      tiles.interleave(use == TileUse::kForward ? tile.values : tile.keys, count, set.kv.D, wide);
    }
    return tile;
  }
  if (set.kv.dtype == DType::kF32) {
    return tile_of_floats(
        reinterpret_cast<const float*>(keys), reinterpret_cast<const float*>(values), count);
  }
  float* wide_values = wide + kPageTokens * set.kv.D;
  tiles.widen(reinterpret_cast<const std::uint16_t*>(keys), count * set.kv.D, wide);
  if (use != TileUse::kColumnSums) {
    tiles.widen(reinterpret_cast<const std::uint16_t*>(values), count * set.kv.D, wide_values);
  }
  return tile_of_floats(wide, wide_values, count);
}

GroupTiles::GroupTiles(const QuerySet& set, const QueryBlock& block)
    : set_(set),
      kv_(set.kv.as_closed()),
      kv_head_(block.kv_head),
      tokens_(set.selection.group_tokens) {
  const Selection& selection = set.selection;
  if (!set.has_groups()) {
    return;
  }
  list_index_ = selection.lists == set.Hq ? block.head : block.kv_head;
  const std::int64_t number =
      block.position(0) / selection.block_queries - set.first_position / selection.block_queries;
  const std::int64_t list = number * selection.lists + list_index_;
  groups_ = selection.counts[list];
  list_ = selection.groups + list * selection.capacity;
}

// Rows are copied side by side and steps made from the pages: groups have whole ones.
KeyTile GroupTiles::load_pairs(const AttentionTiles& tiles,
                               std::int64_t tile,
                               TileUse use,
                               float* wide) const {
  const KvPages& kv = kv_;
  const std::int64_t row = kv.D / tiles.values;
  Cell* keys = wide;
  Cell* values = keys + kTileKeys * row;
  Cell* steps = values + kTileKeys * row;
  const auto bytes = static_cast<std::size_t>(tokens_ * row) * sizeof(Cell);
  KeyTile result{.keys = keys, .values = values, .key_steps = steps, .value_steps = steps};
  for_each_group(tile, [&](std::int64_t token, std::int64_t key) {
    const std::int64_t page = token / kPageTokens;
    const std::int64_t skipped = token % kPageTokens * kv.D * size_of(kv.dtype);
    const std::byte* page_keys = kv.keys(page, kv_head_) + skipped;
    const std::byte* page_values = kv.values(page, kv_head_) + skipped;
    std::memcpy(keys + key * row, page_keys, bytes);
    if (use == TileUse::kBackward) {
      std::memcpy(values + key * row, page_values, bytes);
    }
    const std::byte* stepped = use == TileUse::kForward ? page_values : page_keys;
    tiles.interleave(
        reinterpret_cast<const Cell*>(stepped), tokens_, kv.D, steps + key / tiles.values * kv.D);
    result.count = key + tokens_;
  });
  return result;
}

KeyTile GroupTiles::load(const AttentionTiles& tiles,
                         std::int64_t tile,
                         TileUse use,
                         float* wide) const {
  if (tiles.values > 1) {
    return load_pairs(tiles, tile, use, wide);
  }
  const KvPages& kv = kv_;
  const std::int64_t size = tokens_ * kv.D;
  float* wide_values = wide + kTileKeys * kv.D;
  KeyTile result = tile_of_floats(wide, wide_values, 0);
  for_each_group(tile, [&](std::int64_t token, std::int64_t key) {
    const std::int64_t page = token / kPageTokens;
    const std::int64_t skipped = token % kPageTokens * kv.D * size_of(kv.dtype);
    const std::byte* keys = kv.keys(page, kv_head_) + skipped;
    const std::byte* values = kv.values(page, kv_head_) + skipped;
    if (kv.dtype == DType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(keys), size, wide + key * kv.D);
      std::copy_n(reinterpret_cast<const float*>(values), size, wide_values + key * kv.D);
    } else {
      tiles.widen(reinterpret_cast<const std::uint16_t*>(keys), size, wide + key * kv.D);
      tiles.widen(reinterpret_cast<const std::uint16_t*>(values), size, wide_values + key * kv.D);
    }
    result.count = key + tokens_;
  });
  return result;
}

void GroupTiles::runs(std::int64_t tile, FewRowsTile& few) const {
  const KvPages& kv = kv_;
  few.run_count = 0;
  for_each_group(tile, [&](std::int64_t token, std::int64_t /*key*/) {
    const std::int64_t skipped = token % kPageTokens * kv.D * size_of(kv.dtype);
    const std::int64_t page = token / kPageTokens;
    few.runs[few.run_count++] = {.keys = kv.keys(page, kv_head_) + skipped,
                                 .values = kv.values(page, kv_head_) + skipped,
                                 .count = tokens_};
  });
}

void GroupTiles::bits(const QueryBlock& piece, std::int64_t tile, std::uint64_t* seen) const {
  const Selection& selection = set_.selection;
  const std::int64_t words = selection.words();
  const std::uint64_t whole = ~std::uint64_t{0} >> (64 - tokens_);
  std::fill_n(seen, panels_of(piece.rows) * kPanelRows, std::uint64_t{0});
  for (std::int64_t row = 0; row < piece.rows; ++row) {
    const std::int64_t t = piece.position(row) - set_.first_position;
    const std::uint64_t* asked = selection.seen + (t * selection.lists + list_index_) * words;
    for (std::int64_t i = 0; i < per_tile(); ++i) {
      const std::int64_t group = tile * per_tile() + i;
      if (group < groups_ && (asked[group / 64] >> (group % 64) & 1) != 0) {
        seen[row] |= whole << (i * tokens_);
      }
    }
  }
}

ThreadScratch::ThreadScratch(std::int64_t count) {
  constexpr std::int64_t kLine = 16;  // floats in 64 bytes
  // An odd number of lines: threads' memories do not crowd the same sets of a shared cache.
  stride_ = (round_up(count, kLine) / kLine | 1) * kLine;
  static thread_local ScratchMemory kept;
  const std::int64_t bytes = stride_ * omp_get_max_threads() * std::int64_t{sizeof(float)};
  memory_ = reinterpret_cast<float*>(kept.at_least(bytes));
}

float* ThreadScratch::mine() const {
  return memory_ + omp_get_thread_num() * stride_;
}

std::int64_t most_rows(const std::vector<QueryBlock>& blocks) {
  std::int64_t most = 0;
  for (const QueryBlock& block : blocks) {
    most = std::max(most, block.rows);
  }
  return most;
}

}  // namespace longtune::ops::cpu
