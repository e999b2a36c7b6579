#include "io/disk_speed.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "base/random.h"
#include "io/spill_file.h"

namespace longtune {
namespace {

constexpr std::size_t kAtOnce = BlockIo::kQueueDepth;

// Seconds for `ask(i, buffer)`, which returns a ticket, for i < count, kAtOnce of them in flight.
double seconds_of(SpillFile& file,
                  std::int64_t count,
                  const std::vector<AlignedBuffer>& buffers,
                  const std::function<SpillFile::Ticket(std::int64_t, const AlignedBuffer&)>& ask) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<SpillFile::Ticket> tickets(buffers.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t slot = static_cast<std::size_t>(i) % buffers.size();
    if (i >= static_cast<std::int64_t>(buffers.size())) {
      file.wait(tickets[slot]);
    }
    tickets[slot] = ask(i, buffers[slot]);
  }
  const auto used = std::min(buffers.size(), static_cast<std::size_t>(count));
  for (std::size_t slot = 0; slot < used; ++slot) {
    file.wait(tickets[slot]);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

DiskSpeed measure_disk(const std::filesystem::path& directory,
                       std::int64_t record_bytes,
                       std::int64_t bytes) {
  std::vector<AlignedBuffer> buffers;  // before the file: they outlive what is in flight
  SpillFile file(directory, record_bytes);
  const std::int64_t count = std::max<std::int64_t>(1, bytes / record_bytes);
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    buffers.emplace_back(file.buffer_bytes());
  }
  // Not zeros, which some disks do not store.
  for (const AlignedBuffer& buffer : buffers) {
    for (std::int64_t i = 0; i < file.buffer_bytes(); ++i) {
      buffer.data()[i] = static_cast<std::byte>(random_bits(1, i) >> 56U);
    }
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {  // Fisher and Yates, from the inside out
    const auto j = random_below(2, i, static_cast<std::uint32_t>(i + 1));
    order[static_cast<std::size_t>(i)] = order[j];
    order[j] = i;
  }
  const auto total = static_cast<double>(count * record_bytes);
  const double writing =
      seconds_of(file, count, buffers, [&](std::int64_t i, const AlignedBuffer& buffer) {
        return file.write(i, buffer);
      });
  const double reading =
      seconds_of(file, count, buffers, [&](std::int64_t i, const AlignedBuffer& buffer) {
        return file.read(order[static_cast<std::size_t>(i)], buffer);
      });
  return {.write_bytes_per_s = total / writing, .read_bytes_per_s = total / reading};
}

}  // namespace longtune
