#include <immintrin.h>

#include "ops/cpu/dropout.h"

namespace longtune::ops::cpu {
namespace {

// The lower 64 bits of products, which AVX2 makes of three products of 32 bits.
__m256i multiply(__m256i a, __m256i b) {
  const __m256i low = _mm256_mul_epu32(a, b);
  const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), b),
                                         _mm256_mul_epu32(a, _mm256_srli_epi64(b, 32)));
  return _mm256_add_epi64(low, _mm256_slli_epi64(cross, 32));
}

// splitmix of base/random.h, four at a time.
__m256i splitmix_vector(__m256i z) {
  const __m256i first = _mm256_set1_epi64x(static_cast<long long>(0xBF58476D1CE4E5B9ULL));
  const __m256i second = _mm256_set1_epi64x(static_cast<long long>(0x94D049BB133111EBULL));
  z = multiply(_mm256_xor_si256(z, _mm256_srli_epi64(z, 30)), first);
  z = multiply(_mm256_xor_si256(z, _mm256_srli_epi64(z, 27)), second);
  return _mm256_xor_si256(z, _mm256_srli_epi64(z, 31));
}

// Ones in the 64-bit lanes that are kept.
__m256i kept_lanes(__m256i state, __m256i most_dropped) {
  return _mm256_cmpgt_epi64(_mm256_srli_epi64(splitmix_vector(state), 11), most_dropped);
}

}  // namespace

void dropout_run_avx2(const DropoutRun& run, std::int64_t count, float* factors) {
  const auto step = static_cast<long long>(run.step);
  const __m256i most_dropped = _mm256_set1_epi64x(run.dropped - 1);
  const __m256i four_steps = _mm256_set1_epi64x(static_cast<long long>(4 * run.step));
  const __m128 kept = _mm_set1_ps(run.kept);
  const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  __m256i state = _mm256_setr_epi64x(
      0, step, static_cast<long long>(2 * run.step), static_cast<long long>(3 * run.step));
  state = _mm256_add_epi64(state, _mm256_set1_epi64x(static_cast<long long>(run.state)));
  for (std::int64_t i = 0; i < count; i += 4) {
    const __m256i lanes = _mm256_permutevar8x32_epi32(kept_lanes(state, most_dropped), even);
    const __m128 chosen = _mm_and_ps(_mm_castsi128_ps(_mm256_castsi256_si128(lanes)), kept);
    if (count - i >= 4) {
      _mm_storeu_ps(factors + i, chosen);
    } else {
      float last[4];
      _mm_storeu_ps(last, chosen);
      __builtin_memcpy(factors + i, last, static_cast<std::size_t>(count - i) * sizeof(float));
    }
    state = _mm256_add_epi64(state, four_steps);
  }
}

}  // namespace longtune::ops::cpu
