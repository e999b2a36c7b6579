#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace longtune {
namespace {

TEST(Half, EveryFiniteHalfSurvivesTheRoundTrip) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = half_to_float(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(float_to_half(value), bits) << "value " << value;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(half_to_float(0x3C00), 1.0F);
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3C00);      // tie, to even
  EXPECT_EQ(float_to_half(1.0F + 3 * 0x1p-11F), 0x3C02);  // tie, to even
  EXPECT_EQ(float_to_half(65519.0F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(static_cast<float>(BFloat16(1.0F)), 1.0F);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0F + 3 * 0x1p-8F)), 1.0F + 0x1p-6F);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(NAN))));
  EXPECT_TRUE(std::isinf(static_cast<float>(BFloat16(3.4e38F))));
}

}  // namespace
}  // namespace longtune
