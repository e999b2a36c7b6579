#include "device/host_memory.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

TEST(HostMemory, IsCountedAndTakenBesideARealArenaOnly) {
  Plan plan;
  const HostMemory planned("inputs", 100, Arena::planning(), plan);
  EXPECT_EQ(planned.data(), nullptr);
  const HostMemory taken("inputs", 28, Arena(128, {}), plan);
  ASSERT_NE(taken.data(), nullptr);
  taken.data()[27] = std::byte{7};
  EXPECT_EQ(plan.need(Tier::kHost), 128);
  EXPECT_EQ(plan.need(Tier::kDevice), 0);
}

}  // namespace
}  // namespace longtune
