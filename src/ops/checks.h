#pragma once

#include <initializer_list>

#include "base/error.h"
#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// An argument of an operation and the name it goes by in messages.
struct Argument {
  const char* name = "";
  ConstTensorView view;
};

/// Throws Error kInvalidArgument, naming both arguments and what was expected, unless `argument`
/// has `dtype` and `shape`, which `model` fixes. An `argument` of `model` itself names what the
/// operation takes.
void expect(const char* where,
            const Argument& argument,
            const Argument& model,
            DType dtype,
            std::initializer_list<std::int64_t> shape);

/// Throws Error unless `x` is f32 or bf16 of `rank` dimensions and lies where this build has
/// kernels.
void expect_activations(const char* where, const Argument& x, int rank);

/// Operations of the product of T rows with a frozen matrix.
[[nodiscard]] double product_flops(std::int64_t T, const WeightView& weight);

}  // namespace longtune::ops
