#include "ops/hga_summaries.h"

#include <cmath>

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {

std::vector<float> hga_turns(std::span<const float> frequencies,
                             HgaSummary summary,
                             std::int64_t chunk_tokens) {
  constexpr double kFastestSlow = 0.5;  // rad from a chunk's first token to its last
  const auto half = static_cast<std::int64_t>(frequencies.size());
  std::vector<float> turns(static_cast<std::size_t>(2 * chunk_tokens * half));
  for (std::int64_t row = 0; row < chunk_tokens; ++row) {
    const auto offset = static_cast<double>(row - chunk_tokens / 2);
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = frequencies[static_cast<std::size_t>(i)];
      const bool slow = static_cast<double>(chunk_tokens - 1) * frequency <= kFastestSlow;
      const double angle = summary == HgaSummary::kMixed && slow ? offset * frequency : 0.0;
      const auto at = static_cast<std::size_t>(row * half + i);
      turns[at] = static_cast<float>(std::cos(angle));
      turns[at + static_cast<std::size_t>(chunk_tokens * half)] =
          static_cast<float>(std::sin(angle));
    }
  }
  return turns;
}

void hga_summaries(const HgaSummaries& args) {
  constexpr const char* kWhere = "hga_summaries";
  const Argument chunks{"chunks", args.chunks};
  expect_activations(kWhere, chunks, 3);
  const std::int64_t capacity = args.chunks.dim(1);
  const KvPages& kv = args.kv;
  if (args.group_tokens < 8 || kPageTokens % args.group_tokens != 0) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "groups of {} tokens are not of 8, 16, 32 or 64",
         args.group_tokens);
  }
  if (args.chunk_tokens != kPageTokens && args.chunk_tokens != 2 * kPageTokens) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "chunks of {} tokens are of neither 64 nor 128",
         args.chunk_tokens);
  }
  const std::int64_t S = summary_width(args.summary, kv.D);
  expect(kWhere, chunks, chunks, kv.dtype, {kv.Hkv, capacity, S});
  expect(kWhere,
         {"groups", args.groups},
         chunks,
         kv.dtype,
         {kv.Hkv, capacity * (args.chunk_tokens / args.group_tokens), S});
  expect(kWhere, {"turns", args.turns}, chunks, DType::kF32, {2, args.chunk_tokens, kv.D / 2});
  const std::int64_t closed = std::min(capacity, kv.tokens / args.chunk_tokens);
  if (args.first_chunk < 0 || args.first_chunk > args.end_chunk || args.end_chunk > closed) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "chunks [{}, {}) are not among the {} closed ones",
         args.first_chunk,
         args.end_chunk,
         closed);
  }
  const OperationScope scope(kWhere);
  cpu::hga_summaries(args);
}

}  // namespace longtune::ops
