#pragma once

#include <cstdint>

#include "base/half.h"
#include "ops/cpu/isa.h"

namespace longtune::ops::cpu {

/// The element-wise operations over one row, compiled for each instruction set. `Float` is float or
/// BFloat16; arithmetic is f32. Where an output may be an input, element i is read before it is
/// written. The headers of the operations give the equations.
template <class Float>
struct RowKernels {
  /// Returns rstd; y may be x.
  float (*rms_norm_forward)(
      Float* y, const Float* x, const float* weight, std::int64_t C, float eps);

  struct RmsNormGradient {
    Float* dx;  ///< may be dy or residual
    const Float* dy;
    const Float* x;
    const Float* residual;  ///< or null
    const float* weight;
    float rstd;
    std::int64_t C;
  };

  void (*rms_norm_backward)(const RmsNormGradient& row);

  /// Rotates the halves of one head by the angles of its position; `sign` -1 rotates back.
  void (*rotate)(Float* x, const float* cos, const float* sin, float sign, std::int64_t half);

  void (*swiglu_forward)(Float* y, const Float* gate, const Float* up, std::int64_t count);

  struct SwigluGradient {
    Float* dgate;  ///< may be gate
    Float* dup;    ///< may be up
    const Float* dy;
    const Float* gate;
    const Float* up;
    std::int64_t count;
  };

  void (*swiglu_backward)(const SwigluGradient& row);
};

/// The table of selected_isa().
template <class Float>
[[nodiscard]] const RowKernels<Float>& row_kernels();

template <class Float>
[[nodiscard]] const RowKernels<Float>& portable_row_kernels();
template <class Float>
[[nodiscard]] const RowKernels<Float>& avx2_row_kernels();  ///< x86-64 only
template <class Float>
[[nodiscard]] const RowKernels<Float>& avx512_row_kernels();  ///< x86-64 only

}  // namespace longtune::ops::cpu
