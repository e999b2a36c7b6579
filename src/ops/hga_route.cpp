#include "ops/hga_route.h"

#include "device/arena.h"
#include "ops/attention.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

constexpr const char* kWhere = "hga_route";

void require(bool holds, const char* name, std::int64_t value, const char* rule) {
  if (!holds) {
    fail(ErrorCode::kInvalidArgument, kWhere, "{} {} {}", name, value, rule);
  }
}

void check_settings(const HgaSettings& s) {
  require(s.chunk_tokens == kPageTokens || s.chunk_tokens == 2 * kPageTokens,
          "chunk_tokens",
          s.chunk_tokens,
          "is neither 64 nor 128");
  require(s.first_chunks >= 0, "first_chunks", s.first_chunks, "is negative");
  require(s.last_chunks >= 0, "last_chunks", s.last_chunks, "is negative");
  require(s.group_tokens >= 8 && kPageTokens % s.group_tokens == 0,
          "group_tokens",
          s.group_tokens,
          "is not 8, 16, 32 or 64");
  require(s.block_queries >= 1 && s.chunk_tokens % s.block_queries == 0,
          "block_queries",
          s.block_queries,
          "does not divide a chunk");
  require(s.topk_chunks >= 1, "topk_chunks", s.topk_chunks, "is below 1");
  require(s.topk_groups >= 1, "topk_groups", s.topk_groups, "is below 1");
  require(s.routing == HgaRouting::kBlock || s.union_cap >= s.topk_groups,
          "union_cap",
          s.union_cap,
          "is below topk_groups");
}

}  // namespace

void hga_route(const HgaRoute& args) {
  const HgaSettings& s = args.settings;
  check_settings(s);
  const Argument q{"q", args.q};
  expect_activations(kWhere, q, 3);
  const Argument chunks{"chunks", args.chunks};
  expect_activations(kWhere, chunks, 3);
  const auto T = args.q.dim(0);
  const auto Hq = args.q.dim(1);
  const auto D = args.q.dim(2);
  const auto Hkv = args.chunks.dim(0);
  const auto C = args.chunks.dim(1);
  const auto S = args.chunks.dim(2) == 2 * D ? 2 * D : D;
  expect(kWhere, chunks, q, args.chunks.dtype, {Hkv, C, S});
  expect(kWhere,
         {"group_summaries", args.group_summaries},
         chunks,
         args.chunks.dtype,
         {Hkv, C * s.chunk_groups(), S});
  require(Hkv > 0 && Hq % Hkv == 0, "query heads", Hq, "are no multiple of the KV heads");
  require(D <= kMaxHeadDimension, "head dimension", D, "is above 256");
  require(args.first_position >= 0, "first position", args.first_position, "is negative");
  const std::int64_t last_page = T == 0 ? 0 : (args.first_position + T - 1) / kPageTokens;
  const std::int64_t routed_end = args.selection().window_begin(last_page) / s.chunk_pages();
  require(routed_end <= C, "chunks to route", routed_end, "are more than there are summaries");
  OperationScope scope(kWhere);
  scope.add_flops(2.0 * static_cast<double>(S * cpu::hga_route(args)));
}

}  // namespace longtune::ops
