#include <omp.h>

#include <algorithm>
#include <numbers>

#include "base/bytes.h"
#include "ops/attention.h"
#include "ops/cpu/attention_rows.h"

namespace longtune::ops::cpu {
namespace {

// Keys that a task gathers sums for: the queries are laid out once for them.
constexpr std::int64_t kTaskPages = 4;
constexpr std::int64_t kTaskRows = kBlockRows;
constexpr std::int64_t kSums = kTaskPages * kTileKeys * kPanelRows;

struct Pass {
  const AttentionColumnSums& args;
  const AttentionTiles& tiles;
  QuerySet set;  // the queries that count

  // The sums of pages [first_page, end_page) of one KV head.
  void run(std::int64_t kv_head,
           const std::vector<QueryBlock>& blocks,
           std::int64_t first_page,
           std::int64_t end_page,
           float* memory) const;
  void add_block(const QueryBlock& block,
                 std::int64_t first_page,
                 std::int64_t end_page,
                 float* memory,
                 float* sums) const;
};

void Pass::add_block(const QueryBlock& block,
                     std::int64_t first_page,
                     std::int64_t end_page,
                     float* memory,
                     float* sums) const {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D) / tiles.values;
  const std::int64_t padded_rows = panels_of(block.rows) * kPanelRows;
  const std::int64_t cells = D / tiles.values;
  float* rows = memory;
  float* q_t = rows + kTaskRows * padded_dimension(D);
  float* wide = q_t + kTaskRows * padded_dimension(D);
  gather_rows(
      set, tiles, block, args.q.rows(set.first_position - args.first_position, set.T), rows);
  for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
    tiles.transpose(rows + row * width, width, cells, q_t + row * cells);
  }
  float lse[kTaskRows];
  std::fill_n(lse, kTaskRows, kNoRow);
  const std::int64_t skipped = set.first_position - args.first_position;
  for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
    lse[row] =
        args.lse.as<float>()[(skipped + t) * args.q.dim(1) + h] * std::numbers::log2e_v<float>;
  });
  std::uint64_t seen[kTaskRows];
  causal_bits(block, seen);
  for (std::int64_t page = first_page; page < std::min(end_page, block.page + 1); ++page) {
    const KeyTile tile =
        load_tile(set, tiles, block.kv_head, block.page, page, TileUse::kColumnSums, wide);
    for (std::int64_t row = 0; row < padded_rows; row += kPanelRows) {
      tiles.add_weights({.q_t = q_t + row * cells,
                         .lse = lse + row,
                         .keys = tile.keys,
                         .count = tile.count,
                         .D = D,
                         .unit = args.scale * std::numbers::log2e_v<float>,
                         .seen = page == block.page ? seen + row : nullptr,
                         .sums = sums + (page - first_page) * kTileKeys * kPanelRows});
    }
  }
}

void Pass::run(std::int64_t kv_head,
               const std::vector<QueryBlock>& blocks,
               std::int64_t first_page,
               std::int64_t end_page,
               float* memory) const {
  const std::int64_t S = args.sums.dim(1);
  float* sums = memory;
  std::fill_n(sums, kSums, 0.0F);
  for (QueryBlock block : blocks) {
    if (block.page >= first_page) {
      block.kv_head = kv_head;
      block.head = kv_head * block.heads;
      add_block(block, first_page, end_page, memory + kSums, sums);
    }
  }
  const std::int64_t end = std::min(end_page * kPageTokens, S);
  for (std::int64_t j = first_page * kPageTokens; j < end; ++j) {
    const float* lanes = sums + (j - first_page * kPageTokens) * kPanelRows;
    float sum = 0;
    for (std::int64_t lane = 0; lane < kPanelRows; ++lane) {
      sum += lanes[lane];
    }
    args.sums.as<float>()[kv_head * S + j] = sum / static_cast<float>(set.heads_together());
  }
}

}  // namespace

void attention_column_sums(const AttentionColumnSums& args) {
  const Pass pass{.args = args,
                  .tiles = tiles_for(args.q.dtype, args.kv),
                  .set = {.kv = args.kv,
                          .T = args.end_row - args.first_row,
                          .Hq = args.q.dim(1),
                          .first_position = args.first_position + args.first_row}};
  const std::int64_t pages = (args.sums.dim(1) + kPageTokens - 1) / kPageTokens;
  const std::int64_t runs = (pages + kTaskPages - 1) / kTaskPages;
  std::vector<QueryBlock> blocks;  // of the first KV head
  for (std::int64_t page = pass.set.first_page(); page < pass.set.end_page(); ++page) {
    append_blocks(pass.set, 0, page, kTaskRows, blocks);
  }
  const ThreadScratch scratch(kSums + 2 * (kTaskRows + kTileKeys) * padded_dimension(args.kv.D));
  // Early pages are seen by the most queries: they come first, so that threads end together.
#pragma omp parallel for schedule(dynamic, 1)
  for (std::int64_t task = 0; task < runs * args.kv.Hkv; ++task) {
    const std::int64_t first_page = task / args.kv.Hkv * kTaskPages;
    pass.run(task % args.kv.Hkv,
             blocks,
             first_page,
             std::min(pages, first_page + kTaskPages),
             scratch.mine());
  }
}

}  // namespace longtune::ops::cpu
