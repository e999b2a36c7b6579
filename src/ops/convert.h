#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// y = x, rounded to y's dtype (to nearest, ties to even).
struct Convert {
  TensorView y;       ///< any shape, f32 or bf16
  ConstTensorView x;  ///< shape of y, f32 or bf16
};

/// Throws Error kInvalidArgument where the shapes differ.
void convert(const Convert& args);

}  // namespace longtune::ops
