#include "device/peak.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

TEST(Peak, LiesWhereProcessorsCanBe) {
  const double flops = measure_peak_flops();
  EXPECT_GT(flops, 1e8);
  EXPECT_LT(flops, 1e15);
}

}  // namespace
}  // namespace longtune
