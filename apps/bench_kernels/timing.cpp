#include "apps/bench_kernels/timing.h"

#include <algorithm>
#include <chrono>
#include <ctime>

namespace longtune::bench {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Best best_of(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  Best best;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || Clock::now() - begin < std::chrono::milliseconds(300); ++i) {
    const double cpu = cpu_seconds();
    const auto start = Clock::now();
    run();
    best.wall = std::min(best.wall, std::chrono::duration<double>(Clock::now() - start).count());
    best.cpu = std::min(best.cpu, cpu_seconds() - cpu);
  }
  return best;
}

}  // namespace longtune::bench
