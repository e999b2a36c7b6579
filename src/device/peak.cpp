#include "device/peak.h"

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace longtune {
namespace {

// Enough independent chains to cover the latency of a multiply-add on two ports.
constexpr int kChains = 12;
constexpr std::int64_t kRounds = 200'000;

// Each runs kRounds * kChains vector operations and returns something that depends on all of them.

__attribute__((target("sse2"))) float burn_sse2() {
  const __m128 factor = _mm_set1_ps(0.999F);
  __m128 chains[kChains];
  std::fill_n(chains, kChains, factor);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m128& chain : chains) {
      chain = _mm_add_ps(_mm_mul_ps(chain, factor), factor);
    }
  }
  float sum = 0;
  for (const __m128& chain : chains) {
    sum += _mm_cvtss_f32(chain);
  }
  return sum;
}

__attribute__((target("avx2,fma"))) float burn_avx2() {
  const __m256 factor = _mm256_set1_ps(0.999F);
  __m256 chains[kChains];
  for (__m256& chain : chains) {
    chain = factor;
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m256& chain : chains) {
      chain = _mm256_fmadd_ps(chain, factor, factor);
    }
  }
  float sum = 0;
  for (const __m256& chain : chains) {
    sum += _mm256_cvtss_f32(chain);
  }
  return sum;
}

__attribute__((target("avx512f"))) float burn_avx512() {
  const __m512 factor = _mm512_set1_ps(0.999F);
  __m512 chains[kChains];
  for (__m512& chain : chains) {
    chain = factor;
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m512& chain : chains) {
      chain = _mm512_fmadd_ps(chain, factor, factor);
    }
  }
  float sum = 0;
  for (const __m512& chain : chains) {
    sum += _mm512_cvtss_f32(chain);
  }
  return sum;
}

struct Burner {
  float (*run)();
  int lanes;
};

Burner widest() {
  if (__builtin_cpu_supports("avx512f") != 0) {
    return {burn_avx512, 16};
  }
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    return {burn_avx2, 8};
  }
  return {burn_sse2, 4};
}

}  // namespace

double measure_peak_flops() {
  const Burner burner = widest();
  const int threads = omp_get_max_threads();
  double best = 0;
  float sink = 0;
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for reduction(+ : sink) schedule(static)
    for (int thread = 0; thread < threads; ++thread) {
      sink += burner.run();
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double operations = 2.0 * kRounds * kChains * burner.lanes * threads;
    best = std::max(best, operations / seconds);
  } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(50));
  // The sum is finite; using it keeps the work from being removed.
  return sink > 0 ? best : 0;
}

}  // namespace longtune
