#include "device/read_bandwidth.h"

#include <emmintrin.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/bytes.h"
#include "device/system_memory.h"
#include "device/threads.h"

namespace longtune {
namespace {

constexpr std::int64_t kLargePage = 2 * kMiB;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kMostStreams = 4;

using Buffer = std::unique_ptr<std::byte, decltype(&std::free)>;

/// Memory of `bytes`, a multiple of kLargePage.
Buffer allocate(std::int64_t bytes) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kLargePage, bytes)), &std::free);
  if (buffer == nullptr) {
    throw std::bad_alloc();
  }
  (void)madvise(buffer.get(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a wish
  return buffer;
}

/// A thread's part, in whole lines of all streams. Bytes that do not divide are left out.
std::int64_t part_bytes(std::int64_t bytes) {
  return bytes / threads_in_use() / (kMostStreams * kLine) * (kMostStreams * kLine);
}

/// Reads `bytes` in `streams` runs side by side. The result depends on all of them, so that none
/// is left out. Adding takes less time than loading a line from memory.
int read_streams(const std::byte* data, std::int64_t bytes, std::int64_t streams) {
  __m128i sums[4] = {};
  const std::int64_t run = bytes / streams;
  for (std::int64_t at = 0; at < run; at += kLine) {
    for (std::int64_t stream = 0; stream < streams; ++stream) {
      const auto* line = reinterpret_cast<const __m128i*>(data + stream * run + at);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        sums[i] = _mm_add_epi8(sums[i], _mm_load_si128(line + i));
      }
    }
  }
  const __m128i low = _mm_add_epi8(sums[0], sums[1]);
  const __m128i high = _mm_add_epi8(sums[2], sums[3]);
  return _mm_cvtsi128_si32(_mm_add_epi8(low, high));
}

/// Bytes a second of one round of all threads.
double rate_of_round(const std::byte* data, std::int64_t part, std::int64_t streams) {
  const auto start = std::chrono::steady_clock::now();
  int sum = 0;
  std::int64_t bytes = 0;  // there may be fewer threads than were asked for
#pragma omp parallel reduction(+ : sum, bytes)
  {
    sum += read_streams(data + omp_get_thread_num() * part, part, streams) & 0xFF;
    bytes += part;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // The sum is not negative; using it keeps the reads from being removed.
  return sum < 0 ? 0 : static_cast<double>(bytes) / seconds.count();
}

}  // namespace

std::int64_t bytes_beyond_caches() {
  const std::int64_t wanted = std::max<std::int64_t>(256 * kMiB, threads_in_use() * 32 * kMiB);
  const std::int64_t most = available_memory().value_or(wanted * 2) / 2;
  return std::max(kLargePage, std::min(wanted, most) / kLargePage * kLargePage);
}

double measure_read_bandwidth() {
  using Clock = std::chrono::steady_clock;
  const std::int64_t bytes = bytes_beyond_caches();
  const std::int64_t part = part_bytes(bytes);
  const Buffer buffer = allocate(bytes);
  // Each thread writes what it will read, so that it lies in memory near to it.
#pragma omp parallel
  std::memset(buffer.get() + omp_get_thread_num() * part, 1, static_cast<std::size_t>(part));
  double best = 0;
  const auto begin = Clock::now();
  do {
    for (const std::int64_t streams : {std::int64_t{1}, kMostStreams}) {
      best = std::max(best, rate_of_round(buffer.get(), part, streams));
    }
  } while (Clock::now() - begin < std::chrono::milliseconds(200));
  return best;
}

}  // namespace longtune
