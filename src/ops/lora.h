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

/// The first product of a low-rank adapter (LoRA, arXiv:2106.09685) beside a frozen linear layer,
/// which adds the second, scale * u B^T, to its own (ops/linear.h):
///
///     u = dropout(x) A^T
struct LoraForward {
  TensorView u;       ///< (T, R) f32; kept for the backward pass
  ConstTensorView x;  ///< (T, K) f32 or bf16
  ConstTensorView a;  ///< (R, K) f32
  Dropout dropout;
};

/// Sums in f32, same order for any thread count; rows independent of each other as in
/// linear_forward. Throws Error kInvalidArgument where shapes or dtypes disagree.
void lora_forward(const LoraForward& args);

///     dB += scale * dy^T u     du = scale * dy B     dA += du^T dropout(x)
///
/// What remains is the gradient of the input, mask(du A): linear_backward adds it where nothing is
/// dropped, lora_input_backward otherwise.
struct LoraBackward {
  TensorView da;       ///< (R, K) f32, added to
  TensorView db;       ///< (N, R) f32, added to
  TensorView du;       ///< (T, R) f32, overwritten
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

///     dx += mask(du A)
struct LoraInputBackward {
  TensorView dx;       ///< (T, K) f32 or bf16, added to
  ConstTensorView du;  ///< (T, R) f32, as written by lora_backward
  ConstTensorView a;   ///< (R, K) f32
  Dropout dropout;
};

/// Same guarantees and errors as lora_forward.
void lora_input_backward(const LoraInputBackward& args);

namespace ref {
void lora_forward(const LoraForward& args);
void lora_backward(const LoraBackward& args);
void lora_input_backward(const LoraInputBackward& args);
}  // namespace ref

namespace cpu {
void lora_forward(const LoraForward& args);
void lora_backward(const LoraBackward& args);
void lora_input_backward(const LoraInputBackward& args);
}  // namespace cpu

}  // namespace longtune::ops
