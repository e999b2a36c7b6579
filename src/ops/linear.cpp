#include "ops/linear.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

// `outputs` of a product with the weight and its `inputs`, in the direction of the forward pass.
void check_weight(const WeightView& weight, const Argument& inputs, const Argument& outputs) {
  expect_activations("linear", inputs, 2);
  expect_activations("linear", outputs, 2);
  const bool fits = inputs.view.dim(1) == weight.K && outputs.view.dim(1) == weight.N &&
                    inputs.view.dim(0) == outputs.view.dim(0);
  if (!fits) {
    fail(ErrorCode::kInvalidArgument,
         "linear",
         "weight {} does not match {} {} and {} {}",
         describe(weight),
         inputs.name,
         describe(inputs.view),
         outputs.name,
         describe(outputs.view));
  }
}

}  // namespace

void linear_forward(const LinearForward& args) {
  check_weight(args.weight, {"x", args.x}, {"y", args.y});
  if (args.bias) {
    expect("linear", {"bias", args.bias}, {"y", args.y}, DType::kF32, {args.y.dim(1)});
  }
  if (args.residual) {
    expect("linear",
           {"residual", args.residual},
           {"y", args.y},
           args.y.dtype,
           {args.y.dim(0), args.y.dim(1)});
  }
  const OperationScope scope("linear_forward", product_flops(args.x.dim(0), args.weight));
  cpu::linear_forward(args);
}

void linear_backward(const LinearBackward& args) {
  check_weight(args.weight, {"dx", args.dx}, {"dy", args.dy});
  const OperationScope scope("linear_backward", product_flops(args.dy.dim(0), args.weight));
  cpu::linear_backward(args);
}

}  // namespace longtune::ops
