#pragma once

#include <cstdint>

namespace longtune {

/// The SplitMix64 finaliser (Steele et al. 2014).
[[nodiscard]] constexpr std::uint64_t splitmix(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

/// A counter-based generator: the value at (key, counter) needs no state, so that a dropout mask is
/// the same when a layer is recomputed and a resumed run continues the same stream. Two rounds of
/// the SplitMix64 finaliser over key and counter.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  return splitmix(splitmix(key + kGolden) + (counter + 1) * kGolden);
}

/// Uniform in [0, 1), from the upper 53 bits.
[[nodiscard]] constexpr double random_uniform(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11U) * 0x1p-53;
}

/// Uniform in [0, bound), bound > 0, by multiplication of the upper 32 bits; bias below 2^-32 *
/// bound.
[[nodiscard]] constexpr std::uint32_t random_below(std::uint64_t key,
                                                   std::uint64_t counter,
                                                   std::uint32_t bound) {
  return static_cast<std::uint32_t>(((random_bits(key, counter) >> 32U) * bound) >> 32U);
}

/// A key for a named sub-stream, so that streams of one seed do not overlap.
[[nodiscard]] constexpr std::uint64_t random_key(std::uint64_t seed, std::uint64_t stream) {
  return random_bits(seed, 0xD1B54A32D192ED03ULL ^ stream);
}

}  // namespace longtune
