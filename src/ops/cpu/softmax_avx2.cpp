#include <immintrin.h>

#include "ops/cpu/softmax.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kLanes = 8;

// Ones in the first `count` lanes.
__m256i lanes_below(std::int64_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}

float largest(const float* values, std::int64_t count) {
  __m256 lanes = _mm256_set1_ps(values[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    lanes = _mm256_max_ps(lanes, _mm256_loadu_ps(values + i));
  }
  float stored[kLanes];
  _mm256_storeu_ps(stored, lanes);
  float result = stored[0];
  for (std::int64_t lane = 1; lane < kLanes; ++lane) {
    result = result < stored[lane] ? stored[lane] : result;
  }
  for (; i < count; ++i) {
    result = result < values[i] ? values[i] : result;
  }
  return result;
}

// fast_exp (ops/cpu/exp.h), eight at a time and with fused operations. The bounds stand first in
// minimum and maximum, whose second operand wins where one is NaN.
__m256 exp_vector(__m256 x) {
  const __m256 log2_e = _mm256_set1_ps(1.44269504F);
  const __m256 round = _mm256_set1_ps(12582912.0F + 127.0F);
  x = _mm256_max_ps(_mm256_set1_ps(-87.0F), x);
  x = _mm256_min_ps(_mm256_set1_ps(88.0F), x);
  const __m256 shifted = _mm256_fmadd_ps(x, log2_e, round);
  const __m256 n = _mm256_sub_ps(shifted, round);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6F), r);
  r = _mm256_mul_ps(r, log2_e);
  __m256 p = _mm256_set1_ps(1.53533620e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.33988745e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(9.61843736e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.55033247e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(2.40226479e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(6.93147203e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

double exponentiate(float* values, std::int64_t count, float largest) {
  const __m256 most = _mm256_set1_ps(largest);
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __m256i used = lanes_below(count - i < kLanes ? count - i : kLanes);
    const __m256 value = _mm256_maskload_ps(values + i, used);
    __m256 result = exp_vector(_mm256_sub_ps(value, most));
    result = _mm256_and_ps(result, _mm256_castsi256_ps(used));
    _mm256_maskstore_ps(values + i, used, result);
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(result)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(result, 1)));
  }
  double lanes[4];
  _mm256_storeu_pd(lanes, _mm256_add_pd(low, high));
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

void multiply(float* values, std::int64_t count, float factor) {
  const __m256 factors = _mm256_set1_ps(factor);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(values + i, _mm256_mul_ps(_mm256_loadu_ps(values + i), factors));
  }
  for (; i < count; ++i) {
    values[i] *= factor;
  }
}

}  // namespace

const SoftmaxKernels& softmax_kernels_avx2() {
  static constexpr SoftmaxKernels kKernels = {
      .largest = largest, .exponentiate = exponentiate, .multiply = multiply};
  return kKernels;
}

}  // namespace longtune::ops::cpu
