#include "base/text.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

TEST(Text, QuotesForOneLine) {
  EXPECT_EQ(in_quotes("a.weight"), "'a.weight'");
  EXPECT_EQ(in_quotes("a\nb\xFF"), "'a\\x0Ab\\xFF'");
  EXPECT_EQ(in_quotes(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace longtune
