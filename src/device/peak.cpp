#include "device/peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace longtune {
namespace {

// Enough independent chains to cover the latency of a multiply-add on two ports.
constexpr int kChains = 12;
// Short enough that on a busy machine some rounds run undisturbed.
constexpr std::int64_t kRounds = 20'000;

// Each runs kRounds * kChains vector operations and returns something that depends on all of them.
// The loops over chains are unrolled by hand: otherwise the chains live in memory and its latency
// is what is measured. Chains start apart, or compilers would make one of them.
constexpr float kStarts[kChains] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

__attribute__((target("sse2"))) float burn_sse2() {
  const __m128 factor = _mm_set1_ps(0.999F);
  __m128 chains[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = _mm_set1_ps(kStarts[chain]);
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m128& chain : chains) {
      chain = _mm_add_ps(_mm_mul_ps(chain, factor), factor);
    }
  }
  float sum = 0;
#pragma GCC unroll 12
  for (const __m128& chain : chains) {
    sum += _mm_cvtss_f32(chain);
  }
  return sum;
}

__attribute__((target("avx2,fma"))) float burn_avx2() {
  const __m256 factor = _mm256_set1_ps(0.999F);
  __m256 chains[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = _mm256_set1_ps(kStarts[chain]);
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m256& chain : chains) {
      chain = _mm256_fmadd_ps(chain, factor, factor);
    }
  }
  float sum = 0;
#pragma GCC unroll 12
  for (const __m256& chain : chains) {
    sum += _mm256_cvtss_f32(chain);
  }
  return sum;
}

__attribute__((target("avx512f"))) float burn_avx512() {
  const __m512 factor = _mm512_set1_ps(0.999F);
  __m512 chains[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = _mm512_set1_ps(kStarts[chain]);
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m512& chain : chains) {
      chain = _mm512_fmadd_ps(chain, factor, factor);
    }
  }
  float sum = 0;
#pragma GCC unroll 12
  for (const __m512& chain : chains) {
    sum += _mm512_cvtss_f32(chain);
  }
  return sum;
}

// A multiply-add of a pair counts as two.
__attribute__((target("avx512f,avx512bf16"))) float burn_bf16() {
  const auto pairs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3B803B80));  // 2^-8 each
  __m512 chains[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    chains[chain] = _mm512_set1_ps(kStarts[chain]);
  }
  for (std::int64_t i = 0; i < kRounds; ++i) {
#pragma GCC unroll 12
    for (__m512& chain : chains) {
      chain = _mm512_dpbf16_ps(chain, pairs, pairs);
    }
  }
  float sum = 0;
#pragma GCC unroll 12
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
  if (__builtin_cpu_supports("avx512bf16") != 0) {
    return {burn_bf16, 32};
  }
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
  using Clock = std::chrono::steady_clock;
  const Burner burner = widest();
  const double operations = 2.0 * kRounds * kChains * burner.lanes;
  double sum = 0;
  // All cores burn at once, since that lowers their clocks, but each keeps its own best time.
#pragma omp parallel reduction(+ : sum)
  {
    double best = 0;
    float sink = 0;
    const auto begin = Clock::now();
    do {
      const auto start = Clock::now();
      sink += burner.run();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::max(best, operations / seconds);
    } while (Clock::now() - begin < std::chrono::milliseconds(50));
    // The sinks are positive; using them keeps the work from being removed.
    sum += sink > 0 ? best : 0;
  }
  return sum;
}

}  // namespace longtune
