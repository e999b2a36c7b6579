#pragma once

#include <cstdint>

namespace longtune {

enum class ScheduleKind : std::uint8_t { kCosine, kLinear, kConstant };

/// "cosine", "linear", "constant".
[[nodiscard]] const char* name_of(ScheduleKind kind);

/// The learning rate of step s = 1 .. `steps`, as transformers' get_cosine_schedule_with_warmup,
/// get_linear_schedule_with_warmup and get_constant_schedule_with_warmup give it to the optimiser.
/// With n = s - 1 steps done before:
///
///     n < warmup:   peak * n / warmup             (so the first of them changes nothing)
///     after it, with p = (n - warmup) / max(1, steps - warmup):
///       cosine:     peak * (1 + cos(pi p)) / 2
///       linear:     peak * (1 - p)
///       constant:   peak
struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 0;
  std::int64_t warmup = 0;
  std::int64_t steps = 0;

  [[nodiscard]] double at(std::int64_t step) const;
};

/// Throws Error kInvalidArgument, naming the option as the command line spells it, where peak is
/// not finite and >= 0, warmup is not in [0, steps], or there is no step.
void check(const Schedule& schedule);

}  // namespace longtune
