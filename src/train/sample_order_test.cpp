#include "train/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace longtune {
namespace {

std::vector<std::int64_t> epoch_of(SampleOrder& order, std::int64_t samples, std::int64_t epoch) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < samples; ++i) {
    result.push_back(order.sample_index(epoch * samples + i));
  }
  return result;
}

TEST(SampleOrder, EachEpochHoldsEachSampleOnceInItsOwnOrder) {
  constexpr std::int64_t kSamples = 101;
  SampleOrder order(kSamples, Shuffle::kEachEpoch, 7);
  const std::vector<std::int64_t> first = epoch_of(order, kSamples, 0);
  const std::vector<std::int64_t> second = epoch_of(order, kSamples, 1);
  EXPECT_NE(first, second);
  for (std::vector<std::int64_t> sorted : {first, second}) {
    std::sort(sorted.begin(), sorted.end());
    for (std::int64_t i = 0; i < kSamples; ++i) {
      EXPECT_EQ(sorted[i], i);
    }
  }
}

TEST(SampleOrder, APositionAloneNamesTheSample) {
  SampleOrder whole(10, Shuffle::kEachEpoch, 3);
  SampleOrder resumed(10, Shuffle::kEachEpoch, 3);
  (void)epoch_of(whole, 10, 0);
  (void)epoch_of(whole, 10, 1);
  EXPECT_EQ(whole.sample_index(27), resumed.sample_index(27));
  EXPECT_EQ(epoch_of(whole, 10, 0), epoch_of(resumed, 10, 0));
}

TEST(SampleOrder, SeedsDiffer) {
  SampleOrder a(50, Shuffle::kEachEpoch, 1);
  SampleOrder b(50, Shuffle::kEachEpoch, 2);
  EXPECT_NE(epoch_of(a, 50, 0), epoch_of(b, 50, 0));
}

TEST(SampleOrder, ItsOrderNeverChangesBetweenVersions) {
  SampleOrder order(8, Shuffle::kEachEpoch, 0);
  EXPECT_EQ(epoch_of(order, 8, 0), (std::vector<std::int64_t>{4, 3, 7, 0, 2, 5, 6, 1}));
}

TEST(SampleOrder, WithoutShuffleFilesKeepTheirOrder) {
  SampleOrder order(3, Shuffle::kNone, 1);
  EXPECT_EQ(epoch_of(order, 3, 0), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(epoch_of(order, 3, 5), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(SampleOrder, RefusesNoSamples) {
  EXPECT_THROW(SampleOrder(0, Shuffle::kNone, 0), Error);
}

}  // namespace
}  // namespace longtune
