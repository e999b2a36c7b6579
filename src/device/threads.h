#pragma once

namespace longtune {

/// Cores this process may use: the smaller of its affinity mask and its cgroup's CPU quota (rounded
/// up), at least 1.
[[nodiscard]] int available_cores();

/// How many threads operations use from now on; `count` >= 1. No result depends on it.
void use_threads(int count);

/// That number; all of the system's cores until use_threads chose.
[[nodiscard]] int threads_in_use();

}  // namespace longtune
