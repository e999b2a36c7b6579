#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Angles of rotary position embedding (Su et al. 2021, arXiv:2104.09864) for T consecutive
/// positions, made once a segment and used by all layers:
///
///     cos[t, i] = scale * cos(float(first_position + t) * frequencies[i])        likewise sin
///
/// The product is rounded to f32, as Hugging Face's implementation does; cos and sin of it are
/// exact to f32 rounding.
struct RopeTable {
  TensorView cos;               ///< (T, D/2) f32
  TensorView sin;               ///< (T, D/2) f32
  ConstTensorView frequencies;  ///< (D/2) f32, after any RoPE scaling
  std::int64_t first_position = 0;
  float scale = 1;  ///< YaRN's attention factor (arXiv:2309.00071)
};

void rope_table(const RopeTable& args);

enum class RopeDirection : std::uint8_t {
  kForward,
  kBackward,  ///< The transposed rotation: gradients of the output to gradients of the input.
};

/// Rotates, in place, pairs (i, i + D/2) of each head ("half split", Hugging Face's order):
///
///     y[i]       = x[i] * cos[t, i] - x[i + D/2] * sin[t, i]
///     y[i + D/2] = x[i + D/2] * cos[t, i] + x[i] * sin[t, i]
struct RopeApply {
  TensorView x;         ///< (T, H, D) f32 or bf16
  ConstTensorView cos;  ///< (T, D/2) f32
  ConstTensorView sin;  ///< (T, D/2) f32
  RopeDirection direction = RopeDirection::kForward;
};

/// Both throw Error kInvalidArgument where shapes or dtypes disagree.
void rope_apply(const RopeApply& args);

namespace ref {
void rope_table(const RopeTable& args);
void rope_apply(const RopeApply& args);
}  // namespace ref

namespace cpu {
void rope_table(const RopeTable& args);
void rope_apply(const RopeApply& args);
}  // namespace cpu

}  // namespace longtune::ops
