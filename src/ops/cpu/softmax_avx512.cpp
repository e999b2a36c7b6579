#include <immintrin.h>

#include "ops/cpu/softmax.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kLanes = 16;

// Ones for the lanes that hold values where `left` values are left.
__mmask16 lanes_below(std::int64_t left) {
  return static_cast<__mmask16>(left >= kLanes ? 0xFFFF : (1 << left) - 1);
}

// Where a value is NaN the lane's earlier ones stay, as in the other instruction sets.
float largest(const float* values, std::int64_t count) {
  const __m512 first = _mm512_set1_ps(values[0]);
  __m512 lanes = first;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __m512 next = _mm512_mask_loadu_ps(first, lanes_below(count - i), values + i);
    lanes = _mm512_max_ps(next, lanes);
  }
  float stored[kLanes];
  _mm512_storeu_ps(stored, lanes);
  float result = stored[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) {
    result = result < stored[lane] ? stored[lane] : result;
  }
  return result;
}

// fast_exp (ops/cpu/exp.h), sixteen at a time and with fused operations. The bounds stand first in
// minimum and maximum, whose second operand wins where one is NaN.
__m512 exp_vector(__m512 x) {
  const __m512 log2_e = _mm512_set1_ps(1.44269504F);
  const __m512 round = _mm512_set1_ps(12582912.0F + 127.0F);
  x = _mm512_max_ps(_mm512_set1_ps(-87.0F), x);
  x = _mm512_min_ps(_mm512_set1_ps(88.0F), x);
  const __m512 shifted = _mm512_fmadd_ps(x, log2_e, round);
  const __m512 n = _mm512_sub_ps(shifted, round);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6F), r);
  r = _mm512_mul_ps(r, log2_e);
  __m512 p = _mm512_set1_ps(1.53533620e-4F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.33988745e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.61843736e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.55033247e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.40226479e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.93147203e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(exponent));
}

double exponentiate(float* values, std::int64_t count, float largest) {
  const __m512 most = _mm512_set1_ps(largest);
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 used = lanes_below(count - i);
    const __m512 value = _mm512_maskz_loadu_ps(used, values + i);
    const __m512 result = _mm512_maskz_mov_ps(used, exp_vector(_mm512_sub_ps(value, most)));
    _mm512_mask_storeu_ps(values + i, used, result);
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(result)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(result, 1)));
  }
  double lanes[8];
  _mm512_storeu_pd(lanes, _mm512_add_pd(low, high));
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

void multiply(float* values, std::int64_t count, float factor) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 used = lanes_below(count - i);
    const __m512 value = _mm512_maskz_loadu_ps(used, values + i);
    _mm512_mask_storeu_ps(values + i, used, _mm512_mul_ps(value, factors));
  }
}

}  // namespace

const SoftmaxKernels& softmax_kernels_avx512() {
  static constexpr SoftmaxKernels kKernels = {
      .largest = largest, .exponentiate = exponentiate, .multiply = multiply};
  return kKernels;
}

}  // namespace longtune::ops::cpu
