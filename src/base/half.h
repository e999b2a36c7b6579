#pragma once

#include <bit>
#include <cstdint>

namespace longtune {

/// bfloat16: the upper half of an IEEE 754 binary32. A storage type; arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;

  /// Rounds to nearest, ties to even; NaN stays NaN.
  explicit BFloat16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (wide & 0x7FFFFFFFU) > 0x7F800000U;
    const std::uint32_t rounded = (wide + 0x7FFFU + ((wide >> 16U) & 1U)) >> 16U;
    bits = static_cast<std::uint16_t>(is_nan ? (wide >> 16U) | 0x40U : rounded);
  }

  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
};

static_assert(sizeof(BFloat16) == 2);

/// IEEE 754 binary16, as weight files store it: read exactly, subnormals included.
[[nodiscard]] float half_to_float(std::uint16_t bits);

/// Rounds to nearest, ties to even; overflow becomes infinity.
[[nodiscard]] std::uint16_t float_to_half(float value);

}  // namespace longtune
