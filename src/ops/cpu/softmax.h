#pragma once

#include <cstdint>

namespace longtune::ops::cpu {

/// A long softmax in place, by steps. NaN and infinities among the values make the sum NaN.
struct SoftmaxKernels {
  /// The largest of `count` > 0 values.
  float (*largest)(const float* values, std::int64_t count);

  /// Puts exp(value - largest), with a relative error of at most 3e-7 while above 1e-37, in place
  /// of each value; returns their sum, added up in f64 in a fixed order.
  double (*exponentiate)(float* values, std::int64_t count, float largest);

  void (*multiply)(float* values, std::int64_t count, float factor);
};

/// The table of selected_isa().
[[nodiscard]] const SoftmaxKernels& softmax_kernels();

[[nodiscard]] const SoftmaxKernels& softmax_kernels_portable();
[[nodiscard]] const SoftmaxKernels& softmax_kernels_avx2();    ///< x86-64 only
[[nodiscard]] const SoftmaxKernels& softmax_kernels_avx512();  ///< x86-64 only

}  // namespace longtune::ops::cpu
