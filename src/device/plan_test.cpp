#include "device/plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

Plan example() {
  Plan plan;
  plan.add("weights", Tier::kDevice, 3 * kGiB);
  plan.add("moments", Tier::kDevice, kGiB);
  plan.add("embedding", Tier::kHost, kGiB);
  plan.add("weights", Tier::kDevice, kGiB);
  return plan;
}

TEST(Plan, SumsByTierAndPurpose) {
  EXPECT_EQ(example().need(Tier::kDevice), 5 * kGiB);
  EXPECT_EQ(example().need(Tier::kHost), kGiB);
  EXPECT_EQ(example().need(Tier::kDisk), 0);
  EXPECT_EQ(example().rows.size(), 3U);
}

TEST(Plan, FitsWhereEveryTierDoes) {
  EXPECT_TRUE(fits(example(), {}));
  EXPECT_TRUE(fits(example(), {.device = 5 * kGiB}));
  EXPECT_FALSE(fits(example(), {.device = 5 * kGiB - 1}));
  EXPECT_FALSE(fits(example(), {.device = 6 * kGiB, .host = 1}));
}

TEST(Plan, RefusalNamesNeedBudgetConsumersAndRemedy) {
  try {
    fail_out_of_budget(example(), {.device = 2 * kGiB}, "it fits with --context 64");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_STREQ(
        error.what(),
        "[plan] needs 5.00 GiB of device memory, but --device-memory is 2.00 GiB; largest: "
        "weights 4.00 GiB, moments 1.00 GiB; it fits with --context 64");
  }
}

}  // namespace
}  // namespace longtune
