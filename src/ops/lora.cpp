#include "ops/lora.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

// Rank of an adapter, from its matrix A, which must fit rows of K values.
std::int64_t check_a(const ConstTensorView& a, const Argument& x) {
  expect_activations("lora", x, 2);
  if (a.rank != 2) {
    fail(ErrorCode::kInvalidArgument, "lora", "a {} must be a matrix", describe(a));
  }
  expect("lora", {"a", a}, x, DType::kF32, {a.dim(0), x.view.dim(1)});
  return a.dim(0);
}

void check_dropout(const Dropout& dropout) {
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    fail(ErrorCode::kInvalidArgument, "lora", "dropout {} is not in [0, 1)", dropout.p);
  }
}

}  // namespace

void lora_forward(const LoraForward& args) {
  const Argument x = {"x", args.x};
  const std::int64_t R = check_a(args.a, x);
  const auto T = args.x.dim(0);
  expect("lora", {"u", args.u}, x, DType::kF32, {T, R});
  check_dropout(args.dropout);
  const OperationScope scope("lora_forward", 2.0 * static_cast<double>(T * R * args.x.dim(1)));
  cpu::lora_forward(args);
}

void lora_backward(const LoraBackward& args) {
  const Argument x = {"x", args.x};
  const std::int64_t R = check_a(args.a, x);
  if (args.b.rank != 2) {
    fail(ErrorCode::kInvalidArgument, "lora", "b {} must be a matrix", describe(args.b));
  }
  const auto T = args.x.dim(0);
  const auto K = args.x.dim(1);
  const auto N = args.b.dim(0);
  expect("lora", {"b", args.b}, {"a", args.a}, DType::kF32, {N, R});
  expect("lora", {"dy", args.dy}, x, args.x.dtype, {T, N});
  expect("lora", {"u", args.u}, x, DType::kF32, {T, R});
  expect("lora", {"du", args.du}, x, DType::kF32, {T, R});
  expect("lora", {"da", args.da}, {"a", args.a}, DType::kF32, {R, K});
  expect("lora", {"db", args.db}, {"b", args.b}, DType::kF32, {N, R});
  check_dropout(args.dropout);
  const OperationScope scope("lora_backward", 2.0 * static_cast<double>(T * R * (2 * N + K)));
  cpu::lora_backward(args);
}

void lora_input_backward(const LoraInputBackward& args) {
  const Argument dx = {"dx", args.dx};
  const std::int64_t R = check_a(args.a, dx);
  const auto T = args.dx.dim(0);
  expect("lora", {"du", args.du}, dx, DType::kF32, {T, R});
  check_dropout(args.dropout);
  const OperationScope scope("lora_input_backward",
                             2.0 * static_cast<double>(T * R * args.dx.dim(1)));
  cpu::lora_input_backward(args);
}

}  // namespace longtune::ops
