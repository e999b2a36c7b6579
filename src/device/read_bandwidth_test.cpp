#include "device/read_bandwidth.h"

#include <gtest/gtest.h>

#include "device/threads.h"

namespace longtune {
namespace {

TEST(ReadBandwidth, LiesWhereMemoryCanBe) {
  const double rate = measure_read_bandwidth();
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e13);
}

TEST(ReadBandwidth, IsMeasuredWithAnyNumberOfThreads) {
  const int before = threads_in_use();
  for (const int threads : {1, 3}) {
    use_threads(threads);
    EXPECT_GT(measure_read_bandwidth(), 1e8) << threads;
  }
  use_threads(before);
}

TEST(ReadBandwidth, ReadsMoreWhereMoreThreadsBringMoreCaches) {
  const int before = threads_in_use();
  use_threads(1);
  const std::int64_t one = bytes_beyond_caches();
  use_threads(64);
  const std::int64_t many = bytes_beyond_caches();
  use_threads(before);
  EXPECT_GE(many, one);
  EXPECT_EQ(one % 4096, 0);
  EXPECT_LE(one, 256 << 20);
}

}  // namespace
}  // namespace longtune
