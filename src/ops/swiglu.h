#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// SwiGLU (arXiv:2002.05202): y[t, f] = silu(gate[t, f]) * up[t, f], silu(z) = z / (1 + exp(-z)).
struct SwigluForward {
  TensorView y;          ///< (T, F) f32 or bf16
  ConstTensorView gate;  ///< (T, F), dtype of y
  ConstTensorView up;    ///< (T, F), dtype of y
};

void swiglu_forward(const SwigluForward& args);

///     s = 1 / (1 + exp(-gate))
///
///     dgate = dy * up * s * (1 + gate * (1 - s))          dup = dy * gate * s
struct SwigluBackward {
  TensorView dgate;      ///< (T, F); may be gate itself
  TensorView dup;        ///< (T, F); may be up itself
  ConstTensorView dy;    ///< (T, F)
  ConstTensorView gate;  ///< (T, F)
  ConstTensorView up;    ///< (T, F)
};

/// Both throw Error kInvalidArgument where shapes or dtypes disagree.
void swiglu_backward(const SwigluBackward& args);

namespace ref {
void swiglu_forward(const SwigluForward& args);
void swiglu_backward(const SwigluBackward& args);
}  // namespace ref

namespace cpu {
void swiglu_forward(const SwigluForward& args);
void swiglu_backward(const SwigluBackward& args);
}  // namespace cpu

}  // namespace longtune::ops
