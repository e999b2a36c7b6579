#include "base/half.h"

#include <algorithm>
#include <cmath>

namespace longtune {

float half_to_float(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t float_to_half(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | 0x7E00);
  }
  if (magnitude == 0) {
    return sign;
  }
  if (magnitude >= 65520.0F) {
    return static_cast<std::uint16_t>(sign | 0x7C00);
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent with m in [0.5, 1)
  const int step = std::max(exponent - 11, -24);
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -step)));
  if (step == -24) {
    return static_cast<std::uint16_t>(sign | units);  // subnormal, or just rounded up out of it
  }
  // units is in [1024, 2048]; adding it carries into the exponent where it is 2048.
  return static_cast<std::uint16_t>(sign | (((step + 24) << 10) + units));
}

}  // namespace longtune
