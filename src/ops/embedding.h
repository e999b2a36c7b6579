#pragma once

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Rows of a frozen table, which may lie on the host: y[t, :] = table[tokens[t], :].
struct EmbeddingForward {
  TensorView y;            ///< (T, C) f32 or bf16
  ConstTensorView tokens;  ///< (T) i32
  WeightView table;        ///< (V, C)
};

/// Throws Error kInvalidArgument where shapes disagree or a token is outside [0, V).
void embedding_forward(const EmbeddingForward& args);

namespace ref {
void embedding_forward(const EmbeddingForward& args);
}  // namespace ref

namespace cpu {
void embedding_forward(const EmbeddingForward& args);
}  // namespace cpu

}  // namespace longtune::ops
