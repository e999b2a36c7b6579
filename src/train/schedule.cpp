#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longtune {
namespace {

constexpr std::array kKinds = {
    ScheduleKind::kCosine, ScheduleKind::kLinear, ScheduleKind::kConstant};

}  // namespace

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

std::optional<ScheduleKind> schedule_kind(std::string_view name) {
  for (const ScheduleKind kind : kKinds) {
    if (name == name_of(kind)) {
      return kind;
    }
  }
  return std::nullopt;
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
  constexpr const char* kWhere = "schedule";
  if (!std::isfinite(schedule.peak) || schedule.peak < 0) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "a learning rate of {}; it must be finite and not negative",
         schedule.peak);
  }
  if (schedule.steps < 1) {
    fail(ErrorCode::kInvalidArgument, kWhere, "{} steps; at least 1 is needed", schedule.steps);
  }
  if (schedule.warmup < 0 || schedule.warmup > schedule.steps) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "{} steps of warm-up in a run of {}",
         schedule.warmup,
         schedule.steps);
  }
}

}  // namespace longtune
