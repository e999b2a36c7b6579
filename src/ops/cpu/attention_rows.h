#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/attention_tile.h"
#include "ops/kv_pages.h"
#include "tensor/tensor_view.h"

/// How attention cuts its queries into blocks. The rows of a page of positions are its tokens times
/// the G heads that share a KV head, heads running fastest; a block is a run of them. All rows of a
/// block visit the same pages, those up to their own, however the queries are split into calls.
namespace longtune::ops::cpu {

struct QueryBlock {
  std::int64_t kv_head = 0;
  std::int64_t page = 0;   ///< that the rows' positions lie in
  std::int64_t first = 0;  ///< row among those of the page that are queried
  std::int64_t rows = 0;
};

/// The queries (T, Hq, D) of one call and the memory they attend to.
struct QuerySet {
  KvPages kv;
  std::int64_t T = 0;
  std::int64_t Hq = 0;
  std::int64_t first_position = 0;

  [[nodiscard]] std::int64_t group() const { return Hq / kv.Hkv; }

  [[nodiscard]] std::int64_t end() const { return first_position + T; }

  [[nodiscard]] std::int64_t first_page() const { return first_position / kPageTokens; }

  /// One past the last page; first_page() where T is 0.
  [[nodiscard]] std::int64_t end_page() const {
    return T == 0 ? first_page() : (end() - 1) / kPageTokens + 1;
  }

  /// Position of the first queried token of `page`.
  [[nodiscard]] std::int64_t first_of(std::int64_t page) const;

  /// Rows of one KV head in `page`.
  [[nodiscard]] std::int64_t rows_of(std::int64_t page) const;
};

/// Calls body(row, t, h) for the rows of a block in order.
template <class Body>
void for_each_row(const QuerySet& set, const QueryBlock& block, Body&& body) {
  const std::int64_t G = set.group();
  const std::int64_t first_head = block.kv_head * G;
  std::int64_t t = set.first_of(block.page) - set.first_position + block.first / G;
  std::int64_t g = block.first % G;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    body(row, t, first_head + g);
    if (++g == G) {
      g = 0;
      ++t;
    }
  }
}

/// The blocks of `rows` rows (the last of a page may have fewer) of one KV head in a page, in
/// order.
void append_blocks(const QuerySet& set,
                   std::int64_t kv_head,
                   std::int64_t page,
                   std::int64_t rows,
                   std::vector<QueryBlock>& blocks);

/// Whole panels that hold the rows.
[[nodiscard]] constexpr std::int64_t panels_of(std::int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

/// Copies the block's rows of `x` (T, Hq, D) to (panels * 16, padded D) f32; padding becomes zero.
void gather_rows(const QuerySet& set,
                 const QueryBlock& block,
                 const ConstTensorView& x,
                 float* rows);

/// Which keys of its own page each row sees, a bit a key, for BackwardTile and ForwardTile;
/// (panels * 16) words, padding sees what the first key's row sees.
void causal_bits(const QuerySet& set, const QueryBlock& block, std::uint64_t* seen);

/// The keys and values that the queries may see of a page; bf16 is widened into `wide`, of
/// 2 * 64 * D values.
[[nodiscard]] KeyTile load_tile(const QuerySet& set,
                                const AttentionTiles& tiles,
                                std::int64_t kv_head,
                                std::int64_t page,
                                float* wide);

/// Memory of the calling thread, kept for its next call: `count` floats aligned to 64 bytes.
[[nodiscard]] float* thread_scratch(std::int64_t count);

}  // namespace longtune::ops::cpu
