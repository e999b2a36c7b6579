#pragma once

#include "base/random.h"
#include "ops/lora.h"

namespace longtune::ops::cpu {

/// What elements [first, first + count) of row `t` of an input of K columns are multiplied by: 0
/// where they are dropped, 1 / (1 - p) elsewhere.
inline void dropout_factors(const Dropout& dropout,
                            std::int64_t t,
                            std::int64_t K,
                            std::int64_t first,
                            std::int64_t count,
                            float* factors) {
  const float kept = 1.0F / (1.0F - dropout.p);
  const auto start = static_cast<std::uint64_t>((dropout.first_row + t) * K + first);
  for (std::int64_t i = 0; i < count; ++i) {
    const double drawn = random_uniform(dropout.key, start + static_cast<std::uint64_t>(i));
    factors[i] = drawn < static_cast<double>(dropout.p) ? 0.0F : kept;
  }
}

}  // namespace longtune::ops::cpu
