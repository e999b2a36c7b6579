#include "ops/lora.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

// The dimensions of an adapter: those of its two matrices, and the tokens.
struct Dims {
  std::int64_t T, N, K, R;
};

Dims check_adapter(const ConstTensorView& a, const ConstTensorView& b, const Argument& x) {
  expect_activations("lora", x, 2);
  if (a.rank != 2 || b.rank != 2) {
    fail(ErrorCode::kInvalidArgument,
         "lora",
         "a {} and b {} must be matrices",
         describe(a),
         describe(b));
  }
  const Dims dims{.T = x.view.dim(0), .N = b.dim(0), .K = x.view.dim(1), .R = a.dim(0)};
  expect("lora", {"a", a}, x, DType::kF32, {dims.R, dims.K});
  expect("lora", {"b", b}, {"a", a}, DType::kF32, {dims.N, dims.R});
  return dims;
}

void check_dropout(const Dropout& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    fail(ErrorCode::kInvalidArgument, "lora", "dropout {} is not in [0, 1)", dropout.p);
  }
}

}  // namespace

void lora_forward(const LoraForward& args) {
  const Argument x = {"x", args.x};
  const auto [T, N, K, R] = check_adapter(args.a, args.b, x);
  if (args.y) {
    expect("lora", {"y", args.y}, x, args.x.dtype, {T, N});
  }
  expect("lora", {"u", args.u}, x, DType::kF32, {T, R});
  check_dropout(args.dropout);
  const std::int64_t columns = K + (args.y ? N : 0);
  const OperationScope scope("lora_forward", 2.0 * static_cast<double>(T * R * columns));
  cpu::lora_forward(args);
}

void lora_backward(const LoraBackward& args) {
  const Argument x = {"x", args.x};
  const auto [T, N, K, R] = check_adapter(args.a, args.b, x);
  expect("lora", {"dy", args.dy}, x, args.x.dtype, {T, N});
  expect("lora", {"u", args.u}, x, DType::kF32, {T, R});
  expect("lora", {"du", args.du}, x, DType::kF32, {T, R});
  expect("lora", {"da", args.da}, {"a", args.a}, DType::kF32, {R, K});
  expect("lora", {"db", args.db}, {"b", args.b}, DType::kF32, {N, R});
  if (args.dx) {
    expect("lora", {"dx", args.dx}, x, args.x.dtype, {T, K});
  }
  check_dropout(args.dropout);
  const std::int64_t columns = 2 * N + K + (args.dx ? K : 0);
  const OperationScope scope("lora_backward", 2.0 * static_cast<double>(T * R * columns));
  cpu::lora_backward(args);
}

}  // namespace longtune::ops
