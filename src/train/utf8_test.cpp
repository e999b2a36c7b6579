#include "train/utf8.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

TEST(Utf8, CountsBytesOutsideOfCharacters) {
  EXPECT_EQ(invalid_utf8_bytes(""), 0);
  EXPECT_EQ(invalid_utf8_bytes("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 0);
  EXPECT_EQ(invalid_utf8_bytes("\xC3"), 1);              // cut short
  EXPECT_EQ(invalid_utf8_bytes("\xE2\x82"), 2);          // cut short
  EXPECT_EQ(invalid_utf8_bytes("\xC0\xAF"), 2);          // overlong
  EXPECT_EQ(invalid_utf8_bytes("\xE0\x80\xAF"), 3);      // overlong
  EXPECT_EQ(invalid_utf8_bytes("\xED\xA0\x80"), 3);      // surrogate
  EXPECT_EQ(invalid_utf8_bytes("\xF4\x90\x80\x80"), 4);  // past U+10FFFF
  EXPECT_EQ(invalid_utf8_bytes("\xF0\x80\x80\x80"), 4);  // overlong
  EXPECT_EQ(invalid_utf8_bytes("\xE9t\xE9"), 2);         // Latin-1
  EXPECT_EQ(invalid_utf8_bytes("\xEE\x80\x80\xEF\xBF\xBF"), 0);
}

TEST(Utf8, CountsBytesOfCharactersAmongATable) {
  std::array<bool, 256> table{};
  table[0x07] = table[0xA9] = table[0xFF] = true;
  EXPECT_EQ(valid_utf8_bytes_among("", table), 0);
  EXPECT_EQ(valid_utf8_bytes_among("a\x07\xC3\xA9", table), 2);
  EXPECT_EQ(valid_utf8_bytes_among("\xA9\xFF\xC3", table), 0);
}

}  // namespace
}  // namespace longtune
