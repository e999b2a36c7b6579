#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

struct Queries {
  const char* where;
  ConstTensorView q;
  const KvPages& kv;
  std::int64_t first_position;
  float scale;
};

void check_pages(const Queries& queries) {
  const KvPages& kv = queries.kv;
  const ConstTensorView& q = queries.q;
  if (kv.dtype != DType::kF32 && kv.dtype != DType::kBf16) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "pages hold {}, which is neither f32 nor bf16",
         name_of(kv.dtype));
  }
  if (kv.Hkv <= 0 || q.dim(1) % kv.Hkv != 0) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "the heads of q {} do not fall into groups over {} KV heads",
         describe(q),
         kv.Hkv);
  }
  if (kv.D != q.dim(2)) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "the last dimension of q {} is not that of the pages, {}",
         describe(q),
         kv.D);
  }
  if (q.dim(2) % 2 != 0 || q.dim(2) > kMaxHeadDimension) {
    fail(ErrorCode::kUnsupported,
         queries.where,
         "no kernel for the head dimension of q {}: it must be even and at most {}",
         describe(q),
         kMaxHeadDimension);
  }
}

// What a query does not see scores minus infinity before the factor, and maxima are taken there.
void check_scale(const Queries& queries) {
  if (!std::isfinite(queries.scale) || queries.scale <= 0) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "a scale of {}: it must be finite and above 0",
         queries.scale);
  }
}

void check_queries(const Queries& queries) {
  check_scale(queries);
  expect_activations(queries.where, {"q", queries.q}, 3);
  check_pages(queries);
  const std::int64_t end = queries.first_position + queries.q.dim(0);
  if (queries.first_position < 0 || queries.kv.tokens < end) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "queries at positions [{}, {}) need as many tokens in the pages, which hold {}",
         queries.first_position,
         end,
         queries.kv.tokens);
  }
}

[[noreturn]] void refuse_selection(const Queries& queries, const std::string& what) {
  fail(ErrorCode::kInvalidArgument, queries.where, "{}", what);
}

// The groups listed for one block of queries.
void check_list(const Queries& queries, const Selection& selection, std::int64_t index) {
  const std::int64_t block =
      queries.first_position / selection.block_queries + index / selection.lists;
  const std::int64_t own_page = block * selection.block_queries / kPageTokens;
  const std::int64_t count = selection.counts[index];
  if (count < 0 || count > selection.capacity) {
    refuse_selection(
        queries, fmt::format("a list of {} groups with room for {}", count, selection.capacity));
  }
  const std::span list(selection.groups + index * selection.capacity,
                       static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::int64_t page = std::int64_t{list[i]} * selection.group_tokens / kPageTokens;
    if (list[i] < 0 || page >= own_page || selection.sees_page(own_page, page)) {
      refuse_selection(
          queries,
          fmt::format("group {} is not between the pages that queries in page {} see anyway",
                      list[i],
                      own_page));
    }
    if (std::ranges::find(list.first(i), list[i]) !=
        list.begin() + static_cast<std::ptrdiff_t>(i)) {
      refuse_selection(queries, fmt::format("group {} is listed twice", list[i]));
    }
  }
}

void check_selection(const Queries& queries, const Selection& selection) {
  if (selection.first_pages < 0 || selection.last_pages < 0 || selection.capacity < 0) {
    refuse_selection(
        queries,
        fmt::format("{} first pages, {} last pages and {} groups: none may be negative",
                    selection.first_pages,
                    selection.last_pages,
                    selection.capacity));
  }
  if (selection.chunk_pages < 1) {
    refuse_selection(queries, fmt::format("chunks of {} pages", selection.chunk_pages));
  }
  if (selection.capacity == 0) {
    return;
  }
  const std::int64_t tokens = selection.group_tokens;
  const std::int64_t block = selection.block_queries;
  const std::int64_t Hq = queries.q.dim(1);
  if (tokens != 8 && tokens != 16 && tokens != 32 && tokens != kPageTokens) {
    refuse_selection(queries,
                     fmt::format("groups of {} tokens: it must be 8, 16, 32 or 64", tokens));
  }
  const std::int64_t chunk = selection.chunk_pages * kPageTokens;
  if (block <= 0 || chunk % block != 0) {
    refuse_selection(queries,
                     fmt::format("blocks of {} queries do not divide a chunk of {}", block, chunk));
  }
  if (selection.lists != Hq && selection.lists != queries.kv.Hkv) {
    refuse_selection(queries,
                     fmt::format("{} lists a block, neither {} (KV heads) nor {} (query heads)",
                                 selection.lists,
                                 queries.kv.Hkv,
                                 Hq));
  }
  const std::int64_t lists =
      selection.blocks(queries.first_position, queries.q.dim(0)) * selection.lists;
  if (lists > 0 &&
      (selection.groups == nullptr || selection.counts == nullptr || selection.seen == nullptr)) {
    refuse_selection(queries, "a selection of groups without its lists");
  }
  for (std::int64_t i = 0; i < lists; ++i) {
    check_list(queries, selection, i);
  }
}

void check_like_q(const Queries& queries, const Argument& argument, DType dtype) {
  const ConstTensorView& q = queries.q;
  expect(queries.where, argument, {"q", q}, dtype, {q.dim(0), q.dim(1), q.dim(2)});
}

void check_statistics(const Queries& queries, const Argument& argument) {
  const ConstTensorView& q = queries.q;
  expect(queries.where, argument, {"q", q}, DType::kF32, {q.dim(0), q.dim(1)});
}

void check_live(const AttentionBackward& args, const Queries& queries) {
  if (args.live_begin < 0 || args.live_begin % kPageTokens != 0 ||
      args.live_begin > args.first_position) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "live tokens begin at {}, which is not a multiple of {} up to the first position, {}",
         args.live_begin,
         kPageTokens,
         args.first_position);
  }
  const std::int64_t live = args.first_position + args.q.dim(0) - args.live_begin;
  std::vector<Argument> gradients = {{"dk", args.dk}, {"dv", args.dv}};
  if (args.selection.capacity > 0) {
    gradients.insert(gradients.end(), {{"group_dk", args.group_dk}, {"group_dv", args.group_dv}});
  }
  const std::int64_t rows = std::max(live, args.dk.rank == 3 ? args.dk.dim(0) : 0);
  for (const Argument& gradient : gradients) {
    expect(queries.where, gradient, {"q", args.q}, DType::kF32, {rows, args.kv.Hkv, args.kv.D});
  }
}

// Operations of one product of queries with the keys from `first_key` on that they see. Groups
// count as listed, not as each row sees them.
double product_flops(const Queries& queries, const Selection& selection, std::int64_t first_key) {
  const std::int64_t T = queries.q.dim(0);
  double pairs = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t position = queries.first_position + t;
    const std::int64_t page = position / kPageTokens;
    const std::int64_t window = std::max(first_key, selection.window_begin(page) * kPageTokens);
    const std::int64_t sinks = selection.sinks_end(page) * kPageTokens;
    pairs +=
        static_cast<double>(position + 1 - window + std::max<std::int64_t>(0, sinks - first_key));
  }
  if (selection.capacity > 0) {
    const std::int64_t blocks = selection.blocks(queries.first_position, T);
    const double rows = static_cast<double>(T) / static_cast<double>(blocks * selection.lists);
    for (std::int64_t i = 0; i < blocks * selection.lists; ++i) {
      for (std::int64_t k = 0; k < selection.counts[i]; ++k) {
        const std::int64_t token =
            selection.groups[i * selection.capacity + k] * selection.group_tokens;
        pairs += token < first_key ? 0 : rows * static_cast<double>(selection.group_tokens);
      }
    }
  }
  return 2 * pairs * static_cast<double>(queries.q.dim(1) * queries.q.dim(2));
}

}  // namespace

void attention_forward(const AttentionForward& args) {
  OperationScope scope("attention_forward");  // a selection's lists lie on the device
  const Queries queries{"attention_forward", args.q, args.kv, args.first_position, args.scale};
  check_queries(queries);
  check_like_q(queries, {"out", args.out}, args.q.dtype);
  check_statistics(queries, {"lse", args.lse});
  check_selection(queries, args.selection);
  scope.add_flops(2 * product_flops(queries, args.selection, 0));
  cpu::attention_forward(args);
}

void attention_backward(const AttentionBackward& args) {
  OperationScope scope("attention_backward");
  const Queries queries{"attention_backward", args.q, args.kv, args.first_position, args.scale};
  check_queries(queries);
  check_like_q(queries, {"dq", args.dq}, args.q.dtype);
  check_like_q(queries, {"dout", args.dout}, args.q.dtype);
  check_like_q(queries, {"out", args.out}, args.q.dtype);
  check_statistics(queries, {"lse", args.lse});
  check_statistics(queries, {"delta", args.delta});
  check_selection(queries, args.selection);
  check_live(args, queries);
  scope.add_flops(3 * product_flops(queries, args.selection, 0));
  scope.add_flops(2 * product_flops(queries, args.selection, args.live_begin));
  cpu::attention_backward(args);
}

void attention_column_sums(const AttentionColumnSums& args) {
  const Queries queries{"attention_column_sums", args.q, args.kv, args.first_position, args.scale};
  check_queries(queries);
  check_statistics(queries, {"lse", args.lse});
  const std::int64_t S = args.first_position + args.q.dim(0);
  expect(queries.where, {"sums", args.sums}, {"q", args.q}, DType::kF32, {args.kv.Hkv, S});
  if (args.first_row < 0 || args.first_row > args.end_row || args.end_row > args.q.dim(0)) {
    fail(ErrorCode::kInvalidArgument,
         queries.where,
         "rows [{}, {}) are not among the {} queries",
         args.first_row,
         args.end_row,
         args.q.dim(0));
  }
  const Queries counted{queries.where,
                        args.q.rows(args.first_row, args.end_row - args.first_row),
                        args.kv,
                        args.first_position + args.first_row,
                        args.scale};
  const OperationScope scope("attention_column_sums", product_flops(counted, {}, 0));
  cpu::attention_column_sums(args);
}

}  // namespace longtune::ops
