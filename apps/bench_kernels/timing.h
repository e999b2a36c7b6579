#pragma once

#include <functional>
#include <limits>

namespace longtune::bench {

struct Best {
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();  ///< of all threads together
};

/// Seconds of the fastest of the runs that fit in 0.3 s, at least three: other work on the machine
/// only slows. By the clock on the wall, and by the CPU time of all threads, which other work
/// disturbs less.
[[nodiscard]] Best best_of(const std::function<void()>& run);

}  // namespace longtune::bench
