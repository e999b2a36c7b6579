#include "kv/page_bank.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longtune {
namespace {

TEST(PageBank, TheLeastRecentlyUsedPageLeaves) {
  PageBank bank(3);
  const std::int64_t a = bank.take(10);
  const std::int64_t b = bank.take(20);
  (void)bank.take(30);
  EXPECT_EQ(bank.find(10), a);  // now 20 is the oldest
  EXPECT_EQ(bank.take(40), b);
  EXPECT_FALSE(bank.find(20).has_value());
  EXPECT_EQ(bank.find(10), a);
  EXPECT_TRUE(bank.find(30).has_value());
}

TEST(PageBank, APinnedPageStays) {
  PageBank bank(2);
  const std::int64_t a = bank.take(1);
  bank.pin(a);
  bank.pin(a);
  const std::int64_t b = bank.take(2);
  EXPECT_EQ(bank.take(3), b);
  bank.unpin(a);
  EXPECT_EQ(bank.take(4), b);
  bank.pin(b);
  expect_error([&] { (void)bank.take(5); }, ErrorCode::kInternal, "all 2 slots are pinned");
  bank.unpin(a);
  EXPECT_EQ(bank.take(5), a);
}

TEST(PageBank, ForgetsAllWhenCleared) {
  PageBank bank(2);
  (void)bank.take(1);
  bank.clear();
  EXPECT_FALSE(bank.find(1).has_value());
  (void)bank.take(1);
  (void)bank.take(2);
  EXPECT_TRUE(bank.find(1).has_value());
}

}  // namespace
}  // namespace longtune
