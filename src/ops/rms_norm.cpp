#include "ops/rms_norm.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

void check_row_statistics(const ConstTensorView& rstd,
                          const ConstTensorView& weight,
                          const ConstTensorView& x) {
  expect_activations("rms_norm", {"x", x}, 2);
  expect("rms_norm", {"rstd", rstd}, {"x", x}, DType::kF32, {x.dim(0)});
  expect("rms_norm", {"weight", weight}, {"x", x}, DType::kF32, {x.dim(1)});
}

void check_like_x(const char* name, const ConstTensorView& view, const ConstTensorView& x) {
  expect("rms_norm", {name, view}, {"x", x}, x.dtype, {x.dim(0), x.dim(1)});
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args) {
  check_row_statistics(args.rstd, args.weight, args.x);
  check_like_x("y", args.y, args.x);
  const OperationScope scope("rms_norm_forward");
  cpu::rms_norm_forward(args);
}

void rms_norm_backward(const RmsNormBackward& args) {
  check_row_statistics(args.rstd, args.weight, args.x);
  check_like_x("dx", args.dx, args.x);
  check_like_x("dy", args.dy, args.x);
  if (args.residual) {
    check_like_x("residual", args.residual, args.x);
  }
  const OperationScope scope("rms_norm_backward");
  cpu::rms_norm_backward(args);
}

}  // namespace longtune::ops
