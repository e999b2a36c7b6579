#include "ops/cpu/row_kernels_impl.inc"

namespace longtune::ops::cpu {

template <>
const RowKernels<float>& portable_row_kernels<float>() {
  return kRows<float>;
}

template <>
const RowKernels<BFloat16>& portable_row_kernels<BFloat16>() {
  return kRows<BFloat16>;
}

template <class Float>
const RowKernels<Float>& row_kernels() {
#if defined(__x86_64__)
  if (selected_isa() >= Isa::kAvx512) {
    return avx512_row_kernels<Float>();
  }
  if (selected_isa() == Isa::kAvx2) {
    return avx2_row_kernels<Float>();
  }
#endif
  return portable_row_kernels<Float>();
}

template const RowKernels<float>& row_kernels<float>();
template const RowKernels<BFloat16>& row_kernels<BFloat16>();

}  // namespace longtune::ops::cpu
