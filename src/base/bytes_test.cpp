#include "base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace longtune {
namespace {

TEST(Bytes, ParsesBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("16GiB"), 16 * kGiB);
  EXPECT_EQ(parse_bytes("1.5 MiB"), 3 * kMiB / 2);
  EXPECT_EQ(parse_bytes("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "GiB", "-1GiB", "1 gigabyte", "1GiBs", "99999999999TiB", "nan", "inf"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

TEST(Bytes, FormatsWithAUnit) {
  EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.50 GiB");
  EXPECT_EQ(format_bytes(90 * kMiB), "90.0 MiB");
  EXPECT_EQ(format_bytes(7), "7 B");
}

TEST(Bytes, CheckedArithmeticRefusesOverflowAndNegatives) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_mul(6, 7), 42);
  EXPECT_FALSE(checked_mul(kMax / 2, 3).has_value());
  EXPECT_FALSE(checked_mul(-1, 3).has_value());
  EXPECT_FALSE(checked_add(kMax, 1).has_value());
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(round_up(0, 64), 0);
}

}  // namespace
}  // namespace longtune
