#include "ops/attention.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

struct Queries {
  const char* where;
  const ConstTensorView& q;
  const KvPages& kv;
  std::int64_t first_position;
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

void check_queries(const Queries& queries) {
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

void check_like_q(const Queries& queries, const Argument& argument, DType dtype) {
  const ConstTensorView& q = queries.q;
  expect(queries.where, argument, {"q", q}, dtype, {q.dim(0), q.dim(1), q.dim(2)});
}

void check_statistics(const Queries& queries, const Argument& argument) {
  const ConstTensorView& q = queries.q;
  expect(queries.where, argument, {"q", q}, DType::kF32, {q.dim(1), q.dim(0)});
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
  for (const Argument& gradient : {Argument{"dk", args.dk}, Argument{"dv", args.dv}}) {
    expect(queries.where, gradient, {"q", args.q}, DType::kF32, {live, args.kv.Hkv, args.kv.D});
  }
}

}  // namespace

void attention_forward(const AttentionForward& args) {
  const Queries queries{"attention_forward", args.q, args.kv, args.first_position};
  check_queries(queries);
  check_like_q(queries, {"out", args.out}, args.q.dtype);
  check_statistics(queries, {"lse", args.lse});
  const OperationScope scope;
  cpu::attention_forward(args);
}

void attention_backward(const AttentionBackward& args) {
  const Queries queries{"attention_backward", args.q, args.kv, args.first_position};
  check_queries(queries);
  check_like_q(queries, {"dq", args.dq}, args.q.dtype);
  check_like_q(queries, {"dq_sum", args.dq_sum}, DType::kF32);
  check_like_q(queries, {"dout", args.dout}, args.q.dtype);
  check_like_q(queries, {"out", args.out}, args.q.dtype);
  check_statistics(queries, {"lse", args.lse});
  check_statistics(queries, {"delta", args.delta});
  check_live(args, queries);
  const OperationScope scope;
  cpu::attention_backward(args);
}

}  // namespace longtune::ops
