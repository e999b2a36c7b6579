#pragma once

#include <cstdint>

namespace longtune {

/// Bytes that surely do not fit the processor's caches together: 256 MiB, or 32 MiB a thread where
/// that is more; no more than half of the memory that is available.
[[nodiscard]] std::int64_t bytes_beyond_caches();

/// Bytes a second that the threads which operations use read from memory together: the limit of
/// operations that do little with what they read. A buffer of bytes_beyond_caches() is read again
/// and again for about 200 ms, in large pages where the system gives them, by every thread its own
/// part, in turns as one run and as four side by side, since machines differ in which is faster;
/// the best round counts, since other work on the machine only slows. Throws std::bad_alloc where
/// there is no memory for the buffer.
[[nodiscard]] double measure_read_bandwidth();

}  // namespace longtune
