#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longtune {
const char* name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kConstant:
      return "constant";
  }
  return "?";
}

double Schedule::at(std::int64_t step) const {
  const std::int64_t done = step - 1;
  if (done < warmup) {
    return peak * static_cast<double>(done) / static_cast<double>(warmup);
  }
  const double progress = static_cast<double>(done - warmup) /
                          static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
  switch (kind) {
    case ScheduleKind::kCosine:
      return peak * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    case ScheduleKind::kLinear:
      return peak * std::max(0.0, 1 - progress);
    case ScheduleKind::kConstant:
      return peak;
  }
  return peak;
}

void check(const Schedule& schedule) {
  constexpr const char* kWhere = "train";
  if (!std::isfinite(schedule.peak) || schedule.peak < 0) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--lr {} is not a finite number of at least 0",
         schedule.peak);
  }
  if (schedule.steps < 1) {
    fail(ErrorCode::kInvalidArgument, kWhere, "--steps {} is below 1", schedule.steps);
  }
  if (schedule.warmup < 0 || schedule.warmup > schedule.steps) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--warmup {} is not in 0 .. {}, the steps of the run",
         schedule.warmup,
         schedule.steps);
  }
}

}  // namespace longtune
