#include "ops/cpu/gemm_tiles_avx512.inc"

namespace longtune::ops::cpu {
namespace {

struct FloatStep {
  using Value = float;
  using Vector = __m512;
  static constexpr std::int64_t kStride = kLeftStride;

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }

  static Vector spread(float value) { return _mm512_set1_ps(value); }

  static __m512 add(__m512 sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
};

}  // namespace

const GemmKernels& gemm_kernels_avx512() {
  // What only moves and rounds values is as fast as memory with the vectors of AVX2.
  static const GemmKernels kKernels = [] {
    GemmKernels kernels = gemm_kernels_avx2();
    kernels.tile_rows = kTileRows;
    kernels.tile_panels = kTilePanels;
    kernels.multiply = multiply<FloatStep>;
    return kernels;
  }();
  return kKernels;
}

}  // namespace longtune::ops::cpu
