#include "train/schedule.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace longtune {
namespace {

// As transformers 5.23's schedulers gave them to the optimiser: peak 5e-4, 10 steps, 3 of warm-up.
struct Case {
  ScheduleKind kind;
  std::int64_t warmup;
  std::int64_t steps;
  std::vector<double> rates;
};

TEST(Schedule, EqualsTransformers) {
  const std::vector<Case> cases = {
      {ScheduleKind::kCosine,
       3,
       10,
       {0.0,
        0.00016666666666666666,
        0.0003333333333333333,
        0.0005,
        0.00047524221697560476,
        0.0004058724504646834,
        0.0003056302334890786,
        0.00019436976651092142,
        9.412754953531663e-05,
        2.4757783024395242e-05}},
      {ScheduleKind::kLinear,
       3,
       10,
       {0.0,
        0.00016666666666666666,
        0.0003333333333333333,
        0.0005,
        0.00042857142857142855,
        0.00035714285714285714,
        0.0002857142857142857,
        0.00021428571428571427,
        0.00014285714285714284,
        7.142857142857142e-05}},
      {ScheduleKind::kConstant,
       3,
       5,
       {0.0, 0.00016666666666666666, 0.0003333333333333333, 0.0005, 0.0005}},
      {ScheduleKind::kCosine,
       0,
       4,
       {0.0005, 0.00042677669529663686, 0.00025, 7.322330470336314e-05}}};
  for (const Case& wanted : cases) {
    const Schedule schedule{
        .kind = wanted.kind, .peak = 5e-4, .warmup = wanted.warmup, .steps = wanted.steps};
    for (std::size_t i = 0; i < wanted.rates.size(); ++i) {
      EXPECT_NEAR(schedule.at(static_cast<std::int64_t>(i) + 1), wanted.rates[i], 1e-18)
          << name_of(wanted.kind) << " step " << i + 1;
    }
  }
}

TEST(Schedule, WarmupOfTheWholeRunHasNoDecay) {
  const Schedule schedule{.kind = ScheduleKind::kLinear, .peak = 1, .warmup = 4, .steps = 4};
  EXPECT_DOUBLE_EQ(schedule.at(4), 0.75);
}

TEST(Schedule, RefusesWhatCannotBe) {
  const Schedule good{.peak = 1, .warmup = 2, .steps = 4};
  EXPECT_NO_THROW(check(good));
  Schedule bad = good;
  bad.warmup = 5;
  EXPECT_THROW(check(bad), Error);
  bad = good;
  bad.peak = -1;
  EXPECT_THROW(check(bad), Error);
  bad = good;
  bad.steps = 0;
  EXPECT_THROW(check(bad), Error);
}

}  // namespace
}  // namespace longtune
