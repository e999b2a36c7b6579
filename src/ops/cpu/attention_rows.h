#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cpu/attention_tile.h"
#include "ops/kv_pages.h"
#include "ops/selection.h"
#include "tensor/tensor_view.h"

/// How attention cuts its queries into blocks. The rows of a page of positions are its tokens times
/// the query heads that share keys, heads running fastest; a block is a run of them, aligned to the
/// page. All rows of a block visit the same tiles, however the queries are split into calls.
namespace longtune::ops::cpu {

struct QueryBlock {
  std::int64_t kv_head = 0;
  std::int64_t head = 0;   ///< first query head
  std::int64_t heads = 0;  ///< query heads from it on
  std::int64_t page = 0;   ///< that the rows' positions lie in
  std::int64_t first = 0;  ///< row among those of the page
  std::int64_t rows = 0;

  /// Position of a row.
  [[nodiscard]] std::int64_t position(std::int64_t row) const {
    return page * kPageTokens + (first + row) / heads;
  }
};

/// The queries (T, Hq, D) of one call and the memory they attend to.
struct QuerySet {
  KvPages kv;
  std::int64_t T = 0;
  std::int64_t Hq = 0;
  std::int64_t first_position = 0;
  Selection selection;

  [[nodiscard]] std::int64_t end() const { return first_position + T; }

  [[nodiscard]] std::int64_t first_page() const { return first_position / kPageTokens; }

  /// One past the last page; first_page() where T is 0.
  [[nodiscard]] std::int64_t end_page() const {
    return T == 0 ? first_page() : (end() - 1) / kPageTokens + 1;
  }

  [[nodiscard]] bool has_groups() const { return selection.capacity > 0; }

  /// Query heads whose rows are computed together: those of a KV head, or one where each query head
  /// has lists of its own.
  [[nodiscard]] std::int64_t heads_together() const {
    return has_groups() && selection.lists == Hq ? 1 : Hq / kv.Hkv;
  }

  /// Runs of heads_together() heads.
  [[nodiscard]] std::int64_t head_runs() const { return Hq / heads_together(); }

  /// Rows of a block of queries.
  [[nodiscard]] std::int64_t selection_rows() const {
    return selection.block_queries * heads_together();
  }
};

/// Calls body(row, t, h) for the rows of a block in order.
template <class Body>
void for_each_row(const QuerySet& set, const QueryBlock& block, Body&& body) {
  std::int64_t t = block.position(0) - set.first_position;
  std::int64_t g = block.first % block.heads;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    body(row, t, block.head + g);
    if (++g == block.heads) {
      g = 0;
      ++t;
    }
  }
}

/// The blocks of up to `rows` rows of one run of heads in a page, in order; rows of the page that
/// are not queried are left out.
void append_blocks(const QuerySet& set,
                   std::int64_t head_run,
                   std::int64_t page,
                   std::int64_t rows,
                   std::vector<QueryBlock>& blocks);

/// Up to `rows` rows of a block from its `first` on, as a block of its own.
[[nodiscard]] QueryBlock piece_of(const QueryBlock& block, std::int64_t first, std::int64_t rows);

/// Whole panels that hold the rows.
[[nodiscard]] constexpr std::int64_t panels_of(std::int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

/// The tiles for such queries and pages on the selected instruction set: with cells of two bf16
/// where it has their products, both are bf16 and D is a multiple of 16.
[[nodiscard]] const AttentionTiles& tiles_for(DType q, const KvPages& kv);

/// Copies the block's rows of `x` (T, Hq, D) to (panels * 16, padded D / V) cells; padding becomes
/// zero.
void gather_rows(const QuerySet& set,
                 const AttentionTiles& tiles,
                 const QueryBlock& block,
                 const ConstTensorView& x,
                 Cell* rows);

/// Which keys of its own page each row sees, a bit a key, for BackwardTile and ForwardTile;
/// (panels * 16) words, padding sees the first key.
void causal_bits(const QueryBlock& block, std::uint64_t* seen);

/// What reads a tile, and so which parts of it are there.
enum class TileUse : std::uint8_t { kForward, kBackward, kColumnSums };

/// The keys and values that queries in `query_page` may see of a page, as cells: what the page does
/// not hold as it is is made in `wide`, of 2 * 64 * D values.
[[nodiscard]] KeyTile load_tile(const QuerySet& set,
                                const AttentionTiles& tiles,
                                std::int64_t kv_head,
                                std::int64_t query_page,
                                std::int64_t page,
                                TileUse use,
                                float* wide);

/// The groups listed for a block, all of whose rows lie in one block of queries, as tiles of whole
/// groups.
class GroupTiles {
 public:
  GroupTiles(const QuerySet& set, const QueryBlock& block);

  /// Of 64 tokens; the last may have fewer.
  [[nodiscard]] std::int64_t count() const {
    return (groups_ * tokens_ + kTileKeys - 1) / kTileKeys;
  }

  /// Copies the tokens of a tile side by side into `wide`, of 2 * 64 * D values.
  [[nodiscard]] KeyTile load(const AttentionTiles& tiles,
                             std::int64_t tile,
                             TileUse use,
                             float* wide) const;

  /// The same tokens as they lie in the pages; fills runs and run_count.
  void runs(std::int64_t tile, FewRowsTile& few) const;

  /// Which keys of a tile the rows see, of the block or a piece of it, as causal_bits says it.
  void bits(const QueryBlock& piece, std::int64_t tile, std::uint64_t* seen) const;

  /// Calls body(token, key) for the groups of a tile: their first token, and its place in the tile.
  template <class Body>
  void for_each_group(std::int64_t tile, Body&& body) const {
    const std::int64_t first = tile * per_tile();
    const std::int64_t end = std::min(first + per_tile(), groups_);
    for (std::int64_t i = first; i < end; ++i) {
      body(list_[i] * tokens_, (i - first) * tokens_);
    }
  }

 private:
  [[nodiscard]] std::int64_t per_tile() const { return kTileKeys / tokens_; }

  [[nodiscard]] KeyTile load_pairs(const AttentionTiles& tiles,
                                   std::int64_t tile,
                                   TileUse use,
                                   float* wide) const;

  const QuerySet& set_;
  KvPages kv_;  ///< as closed: groups lie in other chunks than their readers
  std::int64_t kv_head_;
  std::int64_t list_index_ = 0;
  std::int64_t tokens_;      ///< of a group
  std::int64_t groups_ = 0;  ///< listed
  const std::int32_t* list_ = nullptr;
};

/// Memory for each thread of the next parallel region, kept from one call to the next. Taken before
/// the region, since no exception may leave one.
class ThreadScratch {
 public:
  /// `count` floats a thread.
  explicit ThreadScratch(std::int64_t count);

  /// The calling thread's, aligned to 64 bytes.
  [[nodiscard]] float* mine() const;

 private:
  float* memory_;
  std::int64_t stride_;
};

/// The most rows that a block has.
[[nodiscard]] std::int64_t most_rows(const std::vector<QueryBlock>& blocks);

}  // namespace longtune::ops::cpu
