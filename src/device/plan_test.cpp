#include "device/plan.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/error.h"
#include "support/expect_error.h"

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

TEST(Plan, DeviceAndHostShareTheMachinesMemory) {
  EXPECT_TRUE(fits(example(), {.machine_memory = 6 * kGiB}));
  EXPECT_FALSE(fits(example(), {.machine_memory = 6 * kGiB - 1}));
  // One that is named still takes of it.
  EXPECT_FALSE(fits(example(), {.device = 9 * kGiB, .machine_memory = 6 * kGiB - 1}));
  EXPECT_FALSE(fits(example(), {.host = kGiB - 1, .machine_memory = 6 * kGiB}));
  Plan spilling = example();
  spilling.add("keys and values", Tier::kDisk, 7 * kGiB);
  EXPECT_TRUE(fits(spilling, {.machine_memory = 6 * kGiB, .machine_disk = 7 * kGiB}));
  EXPECT_FALSE(fits(spilling, {.machine_disk = 7 * kGiB - 1}));
}

TEST(Plan, TheMachinesLimitHoldsWhereTheUserNamesNone) {
  const Budgets budgets{.device = kGiB, .machine_memory = kGiB};
  EXPECT_FALSE(budgets.is_machines(Tier::kDevice));
  EXPECT_TRUE(budgets.is_machines(Tier::kHost));
  EXPECT_FALSE(budgets.is_machines(Tier::kDisk));
  EXPECT_TRUE(Budgets{.machine_disk = 0}.is_machines(Tier::kDisk));
  EXPECT_TRUE(budgets.has_any());
  EXPECT_TRUE(Budgets{.machine_disk = 0}.has_any());
  EXPECT_FALSE(Budgets{}.has_any());
}

TEST(Plan, RefusalNamesWhatTheMachineHas) {
  Plan plan = example();
  plan.add("keys and values", Tier::kDisk, 7 * kGiB);
  expect_error(
      [&] {
        fail_out_of_budget(plan, {.device = 5 * kGiB, .machine_memory = 2 * kGiB}, "it is so");
      },
      ErrorCode::kOutOfBudget,
      "[plan] needs 6.00 GiB of memory (device 5.00 GiB, host 1.00 GiB), but this machine has "
      "2.00 GiB for both; largest: weights 4.00 GiB, moments 1.00 GiB, embedding 1.00 GiB; it is "
      "so; to go by other limits, name both --device-memory and --host-memory");
  EXPECT_EQ(refusal(plan, {.machine_disk = kGiB}, "it is so"),
            "[plan] needs 7.00 GiB of disk, but --spill-dir has room for 1.00 GiB; largest: keys "
            "and values 7.00 GiB; it is so; to go by another limit, name --disk-memory");
  expect_error([&] { (void)refusal(plan, {}, ""); }, ErrorCode::kInternal, "although it fits");
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
