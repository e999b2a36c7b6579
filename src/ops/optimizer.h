#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// AdamW (arXiv:1711.05101), as torch.optim.AdamW computes it:
///
///     g = grad_scale * grad          param -= lr * weight_decay * param
///     m = beta1 m + (1 - beta1) g    v = beta2 v + (1 - beta2) g^2
///     param -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
struct AdamW {
  TensorView param;      ///< f32, any shape
  TensorView m;          ///< f32, shape of param
  TensorView v;          ///< f32, shape of param
  ConstTensorView grad;  ///< f32, shape of param
  float grad_scale = 1;  ///< clipping
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  ///< from 1
};

/// Throws Error kInvalidArgument where shapes or dtypes disagree.
void adamw(const AdamW& args);

/// Sum of squares of f32 values, in double, in a fixed order; not finite where a value is not.
[[nodiscard]] double sum_of_squares(const ConstTensorView& x);

namespace ref {
void adamw(const AdamW& args);
[[nodiscard]] double sum_of_squares(const ConstTensorView& x);
}  // namespace ref

namespace cpu {
void adamw(const AdamW& args);
[[nodiscard]] double sum_of_squares(const ConstTensorView& x);
}  // namespace cpu

}  // namespace longtune::ops
