#include "device/profile.h"

#include <gtest/gtest.h>

#include "device/arena.h"

namespace longtune {
namespace {

TEST(Profile, AddsUpOperationsByName) {
  EXPECT_EQ(Profile::current(), nullptr);
  {
    const Profile profile;
    { const OperationScope scope("product", 6); }
    { const OperationScope scope("norm"); }
    { const OperationScope scope("product", 4); }
    ASSERT_EQ(profile.rows().size(), 2U);
    EXPECT_EQ(profile.rows()[0].name, "product");
    EXPECT_EQ(profile.rows()[0].calls, 2);
    EXPECT_EQ(profile.rows()[0].flops, 10);
    EXPECT_GE(profile.rows()[0].seconds, 0);
    EXPECT_EQ(profile.rows()[1].calls, 1);
  }
  EXPECT_EQ(Profile::current(), nullptr);
  const OperationScope scope("unseen");
}

}  // namespace
}  // namespace longtune
