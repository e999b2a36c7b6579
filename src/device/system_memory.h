#pragma once

#include <cstdint>
#include <optional>

namespace longtune {

/// Bytes of memory that the system could give this process now without swapping: the smaller of
/// what the kernel says is available and what the cgroup's limit leaves. Nothing where neither is
/// known.
[[nodiscard]] std::optional<std::int64_t> available_memory();

}  // namespace longtune
