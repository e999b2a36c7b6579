#include "ops/head_loss.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

void check_shapes(const HeadLoss& args) {
  const Argument x = {"x", args.x};
  expect_activations("head_loss", x, 2);
  const auto T = args.x.dim(0);
  if (args.weight.K != args.x.dim(1)) {
    fail(ErrorCode::kInvalidArgument,
         "head_loss",
         "weight {} does not match the last dimension of x {}",
         describe(args.weight),
         describe(args.x));
  }
  expect("head_loss", {"losses", args.losses}, x, DType::kF32, {T});
  expect("head_loss", {"targets", args.targets}, x, DType::kI32, {T});
  if (args.dx) {
    expect("head_loss", {"dx", args.dx}, x, args.x.dtype, {T, args.x.dim(1)});
  }
  const bool fits = args.logits.rank == 2 && args.logits.dtype == DType::kF32 &&
                    args.logits.dim(0) > 0 && args.logits.dim(1) == args.weight.N;
  if (!fits) {
    fail(ErrorCode::kInvalidArgument,
         "head_loss",
         "logits {} must be f32 (tile, {}) for the weight {}",
         describe(args.logits),
         args.weight.N,
         describe(args.weight));
  }
}

void check_targets(const HeadLoss& args) {
  const auto* targets = args.targets.as<std::int32_t>();
  for (std::int64_t t = 0; t < args.targets.dim(0); ++t) {
    if (targets[t] != kNoTarget && (targets[t] < 0 || targets[t] >= args.weight.N)) {
      fail(ErrorCode::kInvalidArgument,
           "head_loss",
           "target {} at position {} is outside the vocabulary of {}",
           targets[t],
           t,
           args.weight.N);
    }
  }
}

}  // namespace

void head_loss(const HeadLoss& args) {
  check_shapes(args);
  // Products are as in linear layers, of all tokens, though tiles without a target are left out.
  const double products = args.dx ? 2 : 1;
  const OperationScope scope("head_loss", products * product_flops(args.x.dim(0), args.weight));
  check_targets(args);
  cpu::head_loss(args);
}

}  // namespace longtune::ops
