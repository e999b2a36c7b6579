#pragma once

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// A frozen linear layer over any weight format, unpacked panel by panel, never as a whole, with
/// the second product of the adapter beside it (ops/lora.h):
///
///     y[t, n] = sum_k x[t, k] * W[n, k] + scale * sum_r u[t, r] * B[n, r] + bias[n] + residual[t,
///     n]
struct LinearForward {
  TensorView y;              ///< (T, N) f32 or bf16; may be residual itself
  ConstTensorView x;         ///< (T, K) f32 or bf16
  WeightView weight;         ///< (N, K)
  ConstTensorView bias;      ///< (N) f32, optional
  ConstTensorView residual;  ///< (T, N), dtype of y, optional

  struct Adapter {
    ConstTensorView u;  ///< (T, R) f32, as lora_forward makes it
    ConstTensorView b;  ///< (N, R) f32
    float scale = 1;    ///< alpha / R, or alpha / sqrt(R) for rsLoRA
  };

  Adapter adapter;  ///< optional
};

/// Where x is bf16, instruction sets with products of bf16 (ops/cpu/isa.h) round the unpacked
/// weight to bf16, unless it is held in f32.
///
/// Sums run in f32 in an order that depends on the shapes of the weight alone: a row's bits depend
/// neither on the thread count, nor on how many rows are computed with it, nor on its place among
/// them. Throws Error: kInvalidArgument where shapes or dtypes disagree; kUnsupported without a
/// kernel.
void linear_forward(const LinearForward& args);

/// Gradient with respect to the input; the weight is frozen. With the adapter's part, as long as
/// nothing is dropped of its input:
///
///     dx[t, k] = (accumulate ? dx[t, k] : 0) + sum_n dy[t, n] * W[n, k] + sum_r du[t, r] * A[r, k]
struct LinearBackward {
  TensorView dx;       ///< (T, K) f32 or bf16
  ConstTensorView dy;  ///< (T, N) f32 or bf16
  WeightView weight;   ///< (N, K)
  bool accumulate = false;

  struct Adapter {
    ConstTensorView du;  ///< (T, R) f32, as lora_backward makes it
    ConstTensorView a;   ///< (R, K) f32
  };

  Adapter adapter;  ///< optional
};

/// Same guarantees, rounding (where dy is bf16) and errors as linear_forward.
void linear_backward(const LinearBackward& args);

namespace ref {
void linear_forward(const LinearForward& args);
void linear_backward(const LinearBackward& args);
}  // namespace ref

namespace cpu {
void linear_forward(const LinearForward& args);
void linear_backward(const LinearBackward& args);
}  // namespace cpu

}  // namespace longtune::ops
