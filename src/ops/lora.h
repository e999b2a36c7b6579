#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Drops an input with probability p and scales what stays by 1 / (1 - p). Element (t, k) is
/// dropped where random_uniform(key, (first_row + t) * K + k) < p (base/random.h), so a recomputed
/// forward draws the same mask.
struct Dropout {
  float p = 0;
  std::uint64_t key = 0;
  std::int64_t first_row = 0;
};

/// Low-rank adapter (LoRA, arXiv:2106.09685) beside a frozen linear layer:
///
///     u = dropout(x) A^T            y += scale * u B^T
struct LoraForward {
  TensorView y;       ///< (T, N) f32 or bf16, added to; optional: without it only u is made
  TensorView u;       ///< (T, R) f32; kept for the backward pass
  ConstTensorView x;  ///< (T, K), dtype of y
  ConstTensorView a;  ///< (R, K) f32
  ConstTensorView b;  ///< (N, R) f32
  float scale = 1;    ///< alpha / R, or alpha / sqrt(R) for rsLoRA
  Dropout dropout;
};

/// Sums in f32, same order for any thread count; rows independent of each other as in
/// linear_forward. Throws Error kInvalidArgument where shapes or dtypes disagree.
void lora_forward(const LoraForward& args);

///     dB += scale * dy^T u     du = scale * dy B     dA += du^T dropout(x)     dx += mask(du A)
struct LoraBackward {
  TensorView da;       ///< (R, K) f32, added to
  TensorView db;       ///< (N, R) f32, added to
  TensorView dx;       ///< (T, K), dtype of x, added to; optional
  TensorView du;       ///< (T, R) f32, scratch
  ConstTensorView dy;  ///< (T, N), dtype of x
  ConstTensorView x;   ///< (T, K) f32 or bf16, as given to the forward pass
  ConstTensorView u;   ///< (T, R) f32, as written by the forward pass
  ConstTensorView a;   ///< (R, K) f32
  ConstTensorView b;   ///< (N, R) f32
  float scale = 1;
  Dropout dropout;
};

/// Same guarantees and errors as lora_forward.
void lora_backward(const LoraBackward& args);

namespace ref {
void lora_forward(const LoraForward& args);
void lora_backward(const LoraBackward& args);
}  // namespace ref

namespace cpu {
void lora_forward(const LoraForward& args);
void lora_backward(const LoraBackward& args);
}  // namespace cpu

}  // namespace longtune::ops
