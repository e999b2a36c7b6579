#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace longtune {

/// Bytes of memory that the system could give this process now without swapping: the smaller of
/// what the kernel says is available and what the limits of the process' cgroup (version 1 or 2)
/// and of those above it leave, with what the kernel would take back (page cache, reclaimable
/// slabs) counted as available. Nothing where none of it is known. `root` stands for "/" where
/// proc/ and sys/ are looked up.
[[nodiscard]] std::optional<std::int64_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace longtune
