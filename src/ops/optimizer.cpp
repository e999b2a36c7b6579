#include "ops/optimizer.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

void check_like_param(const Argument& argument, const ConstTensorView& param) {
  if (argument.view.dtype != DType::kF32 || !same_shape(argument.view, param)) {
    fail(ErrorCode::kInvalidArgument,
         "adamw",
         "{} {} does not match param {}: expected the same shape in f32",
         argument.name,
         describe(argument.view),
         describe(param));
  }
}

void check_cpu(const char* where, const Argument& argument) {
  if (argument.view.device != DeviceKind::kCpu) {
    fail(ErrorCode::kUnsupported,
         where,
         "no kernel for {} {} on its device",
         argument.name,
         describe(argument.view));
  }
}

}  // namespace

void adamw(const AdamW& args) {
  for (const Argument& argument : {Argument{"param", args.param},
                                   Argument{"m", args.m},
                                   Argument{"v", args.v},
                                   Argument{"grad", args.grad}}) {
    check_like_param(argument, args.param);
    check_cpu("adamw", argument);
  }
  if (args.step < 1) {
    fail(ErrorCode::kInvalidArgument, "adamw", "step {} is below 1, the first", args.step);
  }
  const OperationScope scope("adamw");
  cpu::adamw(args);
}

double sum_of_squares(const ConstTensorView& x) {
  if (x.dtype != DType::kF32) {
    fail(ErrorCode::kInvalidArgument, "sum_of_squares", "x {} is not f32", describe(x));
  }
  check_cpu("sum_of_squares", {"x", x});
  const OperationScope scope("sum_of_squares");
  return cpu::sum_of_squares(x);
}

}  // namespace longtune::ops
