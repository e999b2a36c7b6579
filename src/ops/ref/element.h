#pragma once

#include <vector>

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops::ref {

/// Element `index` of a contiguous f32 or bf16 tensor.
inline double get(const ConstTensorView& view, std::int64_t index) {
  return with_float_type(view.dtype, [&]<class Float>(Float*) {
    return static_cast<double>(static_cast<float>(view.as<Float>()[index]));
  });
}

inline void set(const TensorView& view, std::int64_t index, double value) {
  with_float_type(view.dtype, [&]<class Float>(Float*) {
    view.as<Float>()[index] = Float(static_cast<float>(value));
  });
}

/// The whole matrix as f32.
inline std::vector<float> unpacked(const WeightView& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.N * weight.K));
  for (std::int64_t n = 0; n < weight.N; ++n) {
    unpack(weight, n, 0, weight.K, values.data() + n * weight.K);
  }
  return values;
}

}  // namespace longtune::ops::ref
