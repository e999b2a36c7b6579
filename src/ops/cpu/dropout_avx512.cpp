#include <immintrin.h>

#include "ops/cpu/dropout.h"

namespace longtune::ops::cpu {
namespace {

// splitmix of base/random.h, eight at a time.
__m512i splitmix_vector(__m512i z) {
  const __m512i first = _mm512_set1_epi64(static_cast<long long>(0xBF58476D1CE4E5B9ULL));
  const __m512i second = _mm512_set1_epi64(static_cast<long long>(0x94D049BB133111EBULL));
  z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 30)), first);
  z = _mm512_mullo_epi64(_mm512_xor_si512(z, _mm512_srli_epi64(z, 27)), second);
  return _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
}

}  // namespace

void dropout_run_avx512(const DropoutRun& run, std::int64_t count, float* factors) {
  const auto step = static_cast<long long>(run.step);
  const __m512i dropped = _mm512_set1_epi64(run.dropped);
  const __m512i eight_steps = _mm512_set1_epi64(static_cast<long long>(8 * run.step));
  const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  __m512i state = _mm512_add_epi64(_mm512_mullo_epi64(lane, _mm512_set1_epi64(step)),
                                   _mm512_set1_epi64(static_cast<long long>(run.state)));
  const __m256 kept = _mm256_set1_ps(run.kept);
  for (std::int64_t i = 0; i < count; i += 8) {
    const __m512i drawn = _mm512_srli_epi64(splitmix_vector(state), 11);
    const __mmask8 keep = _mm512_cmpge_epi64_mask(drawn, dropped);
    const auto used = static_cast<__mmask8>(count - i >= 8 ? 0xFF : (1 << (count - i)) - 1);
    _mm256_mask_storeu_ps(factors + i, used, _mm256_maskz_mov_ps(keep, kept));
    state = _mm512_add_epi64(state, eight_steps);
  }
}

}  // namespace longtune::ops::cpu
