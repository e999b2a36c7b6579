#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/kv_pages.h"

namespace longtune::ops {

/// Which tokens before it a query attends to, besides those of its own chunk up to itself: pages at
/// the beginning, pages just before its own chunk, and groups of tokens that a router opened for
/// its block of queries. By default all tokens: dense causal attention.
///
/// Chunks are runs of `chunk_pages` pages, aligned to position 0.
///
/// Blocks are runs of `block_queries` positions, aligned to position 0, and counted from the one
/// that the first query lies in. A block has one list of groups for every KV head, or one for every
/// query head. Tokens are attended in the order first pages, last pages, own chunk, groups in the
/// order of their list; so what is appended to a list moves nothing that earlier rows read.
struct Selection {
  static constexpr std::int64_t kAllPages = std::numeric_limits<std::int64_t>::max();

  std::int64_t first_pages = 0;         ///< seen from the beginning
  std::int64_t last_pages = kAllPages;  ///< seen before the query's own chunk
  std::int64_t chunk_pages = 1;         ///< of a chunk

  std::int64_t group_tokens =
      16;  ///< of a group: 8, 16, 32 or 64; group i begins at token i times that
  std::int64_t block_queries = 16;  ///< a divisor of a chunk's tokens
  std::int64_t capacity = 0;        ///< groups that there is room for in a list; 0: no groups
  std::int64_t lists = 0;           ///< of a block: Hkv or Hq
  const std::int32_t* groups =
      nullptr;  ///< (blocks, lists, capacity), distinct, in pages not seen otherwise
  const std::int32_t* counts = nullptr;  ///< (blocks, lists): how many groups of a list are used
  const std::uint64_t* seen = nullptr;   ///< (T, lists, words()): bit i: the query sees group i

  /// 64-bit words of a query's bits.
  [[nodiscard]] std::int64_t words() const { return (capacity + 63) / 64; }

  /// Pages [0, sinks_end) and [window_begin, page], the first ones of its own chunk among them, are
  /// what queries in `page` see.
  [[nodiscard]] std::int64_t sinks_end(std::int64_t page) const {
    return std::min(first_pages, window_begin(page));
  }

  [[nodiscard]] std::int64_t window_begin(std::int64_t page) const {
    const std::int64_t own = page - page % chunk_pages;
    return last_pages >= own ? 0 : own - last_pages;
  }

  [[nodiscard]] bool sees_page(std::int64_t query_page, std::int64_t page) const {
    return page < sinks_end(query_page) || (page >= window_begin(query_page) && page <= query_page);
  }

  /// Blocks that positions [first, first + T) lie in.
  [[nodiscard]] std::int64_t blocks(std::int64_t first, std::int64_t T) const {
    return T == 0 ? 0 : (first + T - 1) / block_queries - first / block_queries + 1;
  }
};

}  // namespace longtune::ops
