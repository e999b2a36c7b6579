#pragma once

#include <cstdint>

#include "ops/lora.h"

namespace longtune::ops::cpu {

/// What elements [first, first + count) of row `t` of an input of K columns are multiplied by: 0
/// where they are dropped, 1 / (1 - p) elsewhere.
void dropout_factors(const Dropout& dropout,
                     std::int64_t t,
                     std::int64_t K,
                     std::int64_t first,
                     std::int64_t count,
                     float* factors);

/// A run of random_bits(key, ...), whose upper 53 bits are compared with a bound: the same in
/// integers as random_uniform(key, ...) < p.
struct DropoutRun {
  std::uint64_t state;   ///< of the first element, before the last splitmix
  std::uint64_t step;    ///< from one element's state to the next one's
  std::int64_t dropped;  ///< fewest 2^-53 that are kept
  float kept;            ///< factor of those
};

void dropout_run_portable(const DropoutRun& run, std::int64_t count, float* factors);
void dropout_run_avx2(const DropoutRun& run, std::int64_t count, float* factors);    ///< x86-64 only
void dropout_run_avx512(const DropoutRun& run, std::int64_t count, float* factors);  ///< x86-64 only

}  // namespace longtune::ops::cpu
