#include "ops/cpu/bf16_pairs_avx512.inc"
#include "ops/cpu/gemm_tiles_avx512.inc"

namespace longtune::ops::cpu {
namespace {

struct PairStep {
  using Value = Bf16Pair;
  using Vector = __m512i;
  static constexpr std::int64_t kStride = kLeftPairStride;

  static Vector load(const Bf16Pair* from) { return _mm512_loadu_si512(from); }

  static Vector spread(Bf16Pair value) { return _mm512_set1_epi32(static_cast<int>(value)); }

  static __m512 add(__m512 sum, Vector a, Vector b) { return add_pairs(sum, a, b); }
};

// A pair's place is never beyond what it is made of, so it may take the panel's memory.
void pair(const float* panel, std::int64_t depth, Bf16Pair* pairs) {
  for (std::int64_t k = 0; k < depth; k += 2) {
    const float* from = panel + k * kTileCols;
    const __m512 first = _mm512_loadu_ps(from);
    const __m512 second = k + 1 < depth ? _mm512_loadu_ps(from + kTileCols) : _mm512_setzero_ps();
    _mm512_storeu_si512(pairs + k / 2 * kTileCols, paired(first, second));
  }
}

}  // namespace

const GemmKernels& gemm_kernels_avx512_bf16() {
  static const GemmKernels kKernels = [] {
    GemmKernels kernels = gemm_kernels_avx512();
    kernels.multiply_pairs = multiply<PairStep>;
    kernels.pair = pair;
    return kernels;
  }();
  return kKernels;
}

}  // namespace longtune::ops::cpu
