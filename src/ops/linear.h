#pragma once

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// A frozen linear layer over any weight format, unpacked panel by panel, never as a whole:
///
///     y[t, n] = sum_k x[t, k] * W[n, k] + bias[n] + residual[t, n]
struct LinearForward {
  TensorView y;              ///< (T, N) f32 or bf16; may be residual itself
  ConstTensorView x;         ///< (T, K) f32 or bf16
  WeightView weight;         ///< (N, K)
  ConstTensorView bias;      ///< (N) f32, optional
  ConstTensorView residual;  ///< (T, N), dtype of y, optional
};

/// Sums run in f32 in an order that depends on the shapes of the weight alone: a row's bits depend
/// neither on the thread count, nor on how many rows are computed with it, nor on its place among
/// them. Throws Error: kInvalidArgument where shapes or dtypes disagree; kUnsupported without a
/// kernel.
void linear_forward(const LinearForward& args);

/// Gradient with respect to the input; the weight is frozen.
///
///     dx[t, k] = (accumulate ? dx[t, k] : 0) + sum_n dy[t, n] * W[n, k]
struct LinearBackward {
  TensorView dx;       ///< (T, K) f32 or bf16
  ConstTensorView dy;  ///< (T, N) f32 or bf16
  WeightView weight;   ///< (N, K)
  bool accumulate = false;
};

/// Same guarantees and errors as linear_forward.
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
