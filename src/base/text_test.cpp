#include "base/text.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

TEST(Text, QuotesForOneLine) {
  EXPECT_EQ(in_quotes("a.weight"), "'a.weight'");
  EXPECT_EQ(in_quotes("a\nb\xFF"), "'a\\x0Ab\\xFF'");
  EXPECT_EQ(in_quotes(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

TEST(Text, PrintableLeavesNoControlCharacter) {
  EXPECT_EQ(printable("caf\xC3\xA9 \x1B[2J\n\x7F"), "caf\xC3\xA9 \\x1B[2J\\x0A\\x7F");
  EXPECT_EQ(printable("\xC2\x9B \xC2\xA0 \xC3\x9B"), "\\xC2\\x9B \xC2\xA0 \xC3\x9B");
}

}  // namespace
}  // namespace longtune
