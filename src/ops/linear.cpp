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

// The rank of the adapter beside the weight, from the rows of its first product.
std::int64_t check_rank(const Argument& u) {
  if (u.view.rank != 2) {
    fail(ErrorCode::kInvalidArgument, "linear", "{} {} must be a matrix", u.name, describe(u.view));
  }
  return u.view.dim(1);
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
  double flops = product_flops(args.x.dim(0), args.weight);
  if (args.adapter.u) {
    const Argument u = {"u", args.adapter.u};
    const std::int64_t R = check_rank(u);
    expect("linear", u, {"y", args.y}, DType::kF32, {args.y.dim(0), R});
    expect("linear", {"b", args.adapter.b}, u, DType::kF32, {args.weight.N, R});
    flops += 2.0 * static_cast<double>(args.y.dim(0) * args.weight.N * R);
  }
  const OperationScope scope("linear_forward", flops);
  cpu::linear_forward(args);
}

void linear_backward(const LinearBackward& args) {
  check_weight(args.weight, {"dx", args.dx}, {"dy", args.dy});
  double flops = product_flops(args.dy.dim(0), args.weight);
  if (args.adapter.du) {
    const Argument du = {"du", args.adapter.du};
    const std::int64_t R = check_rank(du);
    expect("linear", du, {"dx", args.dx}, DType::kF32, {args.dx.dim(0), R});
    expect("linear", {"a", args.adapter.a}, du, DType::kF32, {R, args.weight.K});
    flops += 2.0 * static_cast<double>(args.dx.dim(0) * args.weight.K * R);
  }
  const OperationScope scope("linear_backward", flops);
  cpu::linear_backward(args);
}

}  // namespace longtune::ops
