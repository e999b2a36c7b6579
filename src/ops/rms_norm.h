#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Root mean square normalisation (Zhang & Sennrich 2019, arXiv:1910.07467).
///
///     rstd[t] = 1 / sqrt(mean_c(x[t, c]^2) + eps)
///     y[t, c] = x[t, c] * rstd[t] * weight[c]
///
/// The q/k norm of Qwen3 is the same over rows of one head: T = tokens * heads, C = D.
struct RmsNormForward {
  TensorView y;            ///< (T, C) f32 or bf16; may be x itself
  TensorView rstd;         ///< (T) f32; kept for the backward pass
  ConstTensorView x;       ///< (T, C), dtype of y
  ConstTensorView weight;  ///< (C) f32
  float eps = 1e-6F;
};

/// Sums run in f32 in a fixed order, so the result does not depend on the thread count.
/// Throws Error: kInvalidArgument where shapes or dtypes disagree; kUnsupported without a kernel.
void rms_norm_forward(const RmsNormForward& args);

/// Gradient of rms_norm_forward with respect to its input; the weight is frozen.
///
///     g[t, c]  = dy[t, c] * weight[c]          m[t] = mean_c(g[t, c] * x[t, c])
///
///     dx[t, c] = residual[t, c] + rstd[t] * (g[t, c] - x[t, c] * rstd[t]^2 * m[t])
struct RmsNormBackward {
  TensorView dx;             ///< (T, C) f32 or bf16; may be dy or residual itself
  ConstTensorView dy;        ///< (T, C)
  ConstTensorView x;         ///< (T, C), as given to the forward pass
  ConstTensorView rstd;      ///< (T) f32, as written by the forward pass
  ConstTensorView weight;    ///< (C) f32
  ConstTensorView residual;  ///< (T, C), optional: the gradient that bypasses the normalisation
};

/// Same guarantees and errors as rms_norm_forward.
void rms_norm_backward(const RmsNormBackward& args);

namespace ref {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace ref

namespace cpu {
void rms_norm_forward(const RmsNormForward& args);
void rms_norm_backward(const RmsNormBackward& args);
}  // namespace cpu

}  // namespace longtune::ops
