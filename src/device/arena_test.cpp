#include "device/arena.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "base/error.h"

namespace longtune {
namespace {

void take_a_run(Arena& arena) {
  (void)arena.take("weights", DType::kBf16, {100, 3});
  {
    const Arena::Scope layer(arena);
    (void)arena.take("workspace", DType::kF32, {1000});
  }
  {
    const Arena::Scope head(arena);
    (void)arena.take("head", DType::kF32, {2000});
  }
}

TEST(Arena, PlanEqualsTheRealHighWaterMarkAndScopesShareMemory) {
  Arena plan = Arena::planning();
  take_a_run(plan);
  EXPECT_EQ(plan.high_water(), 640 + 8064);  // 600 and 8000 bytes in units of 128
  Arena real(plan.high_water(), {});
  take_a_run(real);
  EXPECT_EQ(real.high_water(), plan.high_water());
  EXPECT_EQ(real.used(), 640);
}

TEST(Arena, PurposesSumToTheHighWaterMark) {
  Arena plan = Arena::planning();
  take_a_run(plan);
  std::int64_t sum = 0;
  for (const PurposeBytes& purpose : plan.high_water_purposes()) {
    EXPECT_NE(purpose.purpose, "workspace");  // the smaller of the two scopes is not at the peak
    sum += purpose.bytes;
  }
  EXPECT_EQ(sum, plan.high_water());
}

TEST(Arena, KeptHighWaterIsNotTakenAgain) {
  Arena plan = Arena::planning();
  take_a_run(plan);
  plan.keep_high_water();
  EXPECT_EQ(plan.used(), 640 + 8064);
  (void)plan.take("more", DType::kF32, {1});
  EXPECT_EQ(plan.high_water(), 640 + 8064 + Arena::kAlignment);
}

TEST(Arena, RefusesByNameWhatDoesNotFit) {
  Arena arena(4096, {});
  try {
    (void)arena.take_bytes("moments", 8192);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_STREQ(error.what(), "[arena] moments needs 8 KiB, but 0 B of 4 KiB are taken");
  }
}

TEST(ArenaDeathTest, GuardedMemoryIsReadableInsideOperationsOnly) {
  Arena arena(4096, {.guard = true});
  const TensorView x = arena.take("x", DType::kF32, {2});
  const std::array<float, 2> values{1, 2};
  copy_to_device(x, values.data(), sizeof values);
  std::array<float, 2> back{};
  copy_to_host(back.data(), x, sizeof back);
  EXPECT_EQ(back, values);
  EXPECT_DEATH((void)(*static_cast<volatile float*>(x.as<float>()) + 1), "");
}

}  // namespace
}  // namespace longtune
