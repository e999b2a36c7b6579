#pragma once

#include <cstdint>
#include <filesystem>

namespace longtune {

/// What a directory's disk does by itself, asked as a SpillFile asks: records written one after
/// another, and read back in random order, several at once, past the page cache where the file
/// system allows that.
struct DiskSpeed {
  double write_bytes_per_s = 0;
  double read_bytes_per_s = 0;
};

/// Writes and reads `bytes` in records of `record_bytes`, at least one; leaves nothing behind.
/// Throws Error kIo as SpillFile does.
[[nodiscard]] DiskSpeed measure_disk(const std::filesystem::path& directory,
                                     std::int64_t record_bytes,
                                     std::int64_t bytes);

}  // namespace longtune
