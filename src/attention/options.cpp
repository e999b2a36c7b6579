#include "attention/options.h"

#include "base/error.h"

namespace longtune {
namespace {

constexpr std::int64_t kMost = 4096;  // chunks, groups and pages: more are no selection

void require(bool holds, const char* option, std::int64_t value, const std::string& rule) {
  if (!holds) {
    fail(ErrorCode::kInvalidArgument, "attention", "--hga.{} {} {}", option, value, rule);
  }
}

void require_range(const char* option, std::int64_t value, std::int64_t from, std::int64_t to) {
  require(value >= from && value <= to, option, value, fmt::format("is not in {} .. {}", from, to));
}

}  // namespace

const char* name_of(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kDense:
      return "dense";
    case AttentionKind::kHga:
      return "hga";
  }
  return "?";
}

const char* name_of(ops::HgaRouting routing) {
  switch (routing) {
    case ops::HgaRouting::kCausal:
      return "causal";
    case ops::HgaRouting::kBlock:
      return "block";
  }
  return "?";
}

const char* name_of(ops::HgaSummary summary) {
  switch (summary) {
    case ops::HgaSummary::kMixed:
      return "mixed";
    case ops::HgaSummary::kMean:
      return "mean";
    case ops::HgaSummary::kMinMax:
      return "min-max";
  }
  return "?";
}

ops::HgaSettings paper_hga_settings() {
  return {.routing = ops::HgaRouting::kBlock,
          .block_queries = ops::kPageTokens,
          .topk_chunks = 8,
          .topk_groups = 32,
          .per_query_head = true};
}

void check(const AttentionOptions& options) {
  if (options.is_dense()) {
    return;
  }
  const ops::HgaSettings& hga = options.hga;
  require(hga.chunk_tokens == ops::kPageTokens || hga.chunk_tokens == 2 * ops::kPageTokens,
          "chunk",
          hga.chunk_tokens,
          "is neither 64 nor 128");
  require_range("keep-first", hga.first_chunks, 0, kMost);
  require_range("keep-last", hga.last_chunks, 0, ops::Selection::kAllPages);
  require_range("topk-chunks", hga.topk_chunks, 1, kMost);
  require_range("topk-groups", hga.topk_groups, 1, kMost);
  require(hga.group_tokens >= 8 && hga.group_tokens <= ops::kPageTokens &&
              ops::kPageTokens % hga.group_tokens == 0,
          "group",
          hga.group_tokens,
          "is not 8, 16, 32 or 64");
  require(hga.block_queries >= 1 && hga.chunk_tokens % hga.block_queries == 0,
          "route-block",
          hga.block_queries,
          fmt::format("does not divide the chunk of {}", hga.chunk_tokens));
  if (hga.routing == ops::HgaRouting::kCausal) {
    require_range("union-cap", hga.union_cap, hga.topk_groups, kMost);
  } else {
    require(hga.block_queries == hga.chunk_tokens,
            "route-block",
            hga.block_queries,
            fmt::format("is not the chunk of {}, as --hga.routing block needs", hga.chunk_tokens));
  }
}

}  // namespace longtune
