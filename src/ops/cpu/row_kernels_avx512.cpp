#include "ops/cpu/row_kernels_impl.inc"

namespace longtune::ops::cpu {

template <>
const RowKernels<float>& avx512_row_kernels<float>() {
  return kRows<float>;
}

template <>
const RowKernels<BFloat16>& avx512_row_kernels<BFloat16>() {
  return kRows<BFloat16>;
}

}  // namespace longtune::ops::cpu
