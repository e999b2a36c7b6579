#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/selection.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// How Hierarchical Global Attention (arXiv:2606.30709) decides which groups a query sees. A score
/// is the product of a rotated query with a summary (with bounds: of its positive part with the
/// largest and of its negative part with the smallest), the largest over the query heads that share
/// a list; of equal scores the earlier position wins, and what is no number is last.
enum class HgaRouting : std::uint8_t {
  /// Strictly causal. A query asks for the topk_groups best groups of its own topk_chunks best
  /// chunks. The groups that the queries of a block asked for so far make its list, up to union_cap
  /// of them.
  kCausal,
  /// The paper's: the best chunks of a block by its best query each, then the best groups of those
  /// likewise; a query sees those of them that it or an earlier one of the block has among its own
  /// best (topk_groups / 2). What is listed depends on later queries of the block.
  kBlock,
};

/// What a query sees of its block's list with causal routing.
enum class HgaSight : std::uint8_t {
  /// All that is in it so far: it was gathered anyway. The first query whose groups do not all fit
  /// adds the best that do; from then on the list stays as it is.
  kList,
  /// What it asked for itself. From the first query whose groups do not all fit, the list stays as
  /// it is, and queries get the best topk_groups of those of their chunks' groups that are in it.
  kAsked,
};

struct HgaSettings {
  HgaRouting routing = HgaRouting::kCausal;
  std::int64_t chunk_tokens = 64;   ///< of a chunk: 64 or 128
  std::int64_t first_chunks = 2;    ///< the sinks, seen by all
  std::int64_t last_chunks = 2;     ///< the window before a query's own chunk, likewise
  std::int64_t group_tokens = 16;   ///< 8, 16, 32 or 64
  std::int64_t block_queries = 16;  ///< queries that share a list: a divisor of chunk_tokens
  std::int64_t topk_chunks = 32;
  std::int64_t topk_groups = 24;
  std::int64_t union_cap = 96;  ///< groups of a list, at least topk_groups; causal routing
  HgaSight sight = HgaSight::kList;
  bool per_query_head = false;  ///< a list for every query head, else for every KV head

  /// Pages of a chunk.
  [[nodiscard]] std::int64_t chunk_pages() const { return chunk_tokens / kPageTokens; }

  /// Groups of a chunk.
  [[nodiscard]] std::int64_t chunk_groups() const { return chunk_tokens / group_tokens; }

  /// Groups that there is room for in a list.
  [[nodiscard]] std::int64_t capacity() const {
    return routing == HgaRouting::kCausal ? union_cap : topk_groups;
  }
};

/// The list of the block that the next query lies in, where it is open: kept between calls, so that
/// queries may come one at a time.
struct HgaOpenList {
  std::int32_t* groups = nullptr;  ///< (lists, capacity)
  std::int32_t* counts = nullptr;  ///< (lists)
  std::int32_t* full = nullptr;    ///< (lists) 1: a query's groups did not fit
};

/// Lists of groups, and who sees them, as a Selection holds them, for queries at positions
/// [first_position, first_position + T). Groups come from chunks that are neither among the first
/// nor the last ones before the query's own, all of which must have their summaries.
struct HgaRoute {
  std::int32_t* groups = nullptr;   ///< (blocks, lists, capacity), lists in the order of opening
  std::int32_t* counts = nullptr;   ///< (blocks, lists)
  std::uint64_t* seen = nullptr;    ///< (T, lists, words)
  HgaOpenList open;                 ///< read where first_position lies inside a block, and written
  ConstTensorView q;                ///< (T, Hq, D) f32 or bf16, rotated
  ConstTensorView chunks;           ///< (Hkv, C, S) summaries, f32 or bf16; S is D, or 2 D: bounds
  ConstTensorView group_summaries;  ///< (Hkv, C * chunk_groups(), S), dtype of `chunks`
  std::int64_t first_position = 0;
  HgaSettings settings;

  /// The view of what was written.
  [[nodiscard]] Selection selection() const {
    const std::int64_t pages = settings.chunk_pages();
    const std::int64_t last = std::min(settings.last_chunks, Selection::kAllPages / pages);
    return {.first_pages = settings.first_chunks * pages,
            .last_pages = last * pages,
            .chunk_pages = pages,
            .group_tokens = settings.group_tokens,
            .block_queries = settings.block_queries,
            .capacity = settings.capacity(),
            .lists = lists(),
            .groups = groups,
            .counts = counts,
            .seen = seen};
  }

  [[nodiscard]] std::int64_t lists() const {
    return settings.per_query_head ? q.dim(1) : chunks.dim(0);
  }
};

/// No bit depends on the thread count; with causal routing none on how the queries are split into
/// calls. Throws Error kInvalidArgument where shapes, dtypes or settings disagree.
void hga_route(const HgaRoute& args);

namespace ref {
void hga_route(const HgaRoute& args);
}  // namespace ref

namespace cpu {
/// Returns the products of a query and a summary that it made.
std::int64_t hga_route(const HgaRoute& args);
}  // namespace cpu

}  // namespace longtune::ops
