#include "device/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace longtune {
namespace {

// cgroup v2 writes "max 100000" or "200000 100000": microseconds of CPU time a period.
int quota_of_cgroup() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return 1 << 20;
  }
  return std::max(1, static_cast<int>(std::ceil(std::strtod(quota.c_str(), nullptr) / period)));
}

}  // namespace

int available_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int affinity = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                           : omp_get_num_procs();
  return std::max(1, std::min(affinity, quota_of_cgroup()));
}

void use_threads(int count) {
  omp_set_num_threads(count);
}

int threads_in_use() {
  return omp_get_max_threads();
}

}  // namespace longtune
