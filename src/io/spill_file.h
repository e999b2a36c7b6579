#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

namespace longtune {

/// Memory aligned as direct I/O wants it.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::int64_t bytes);

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

  static constexpr std::int64_t kAlignment = 4096;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::unique_ptr<std::byte[], Free> memory_;
};

/// A file of equal records that lives as long as this object and no longer: it has no name, so that
/// nothing is left of it however the process ends. Past the page cache where the file system allows
/// (direct I/O). Reads and writes run behind the caller, in the order in which they were asked for.
class SpillFile {
 public:
  /// Throws Error kIo, naming the directory, where no file can be made there.
  SpillFile(const std::filesystem::path& directory, std::int64_t record_bytes);

  /// Waits for what was asked for; never throws.
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Bytes of a buffer for one record: record_bytes rounded up for direct I/O.
  [[nodiscard]] std::int64_t buffer_bytes() const { return buffer_bytes_; }

  [[nodiscard]] bool is_direct() const { return direct_; }

  /// What was asked for, to be waited for.
  using Ticket = std::int64_t;

  /// Buffers are AlignedBuffers of buffer_bytes() and stay as they are until the ticket was waited
  /// for.
  [[nodiscard]] Ticket write(std::int64_t record, const AlignedBuffer& from);
  [[nodiscard]] Ticket read(std::int64_t record, const AlignedBuffer& to);

  /// Returns once the ticket's request is done. Throws Error kIo, naming directory and record,
  /// where it, or one before it, failed: "no space left" among the reasons.
  void wait(Ticket ticket);

  [[nodiscard]] bool is_done(Ticket ticket) const;

  /// Bytes written and read so far, seconds that wait() took and that the requests themselves took.
  struct Traffic {
    std::int64_t written = 0;
    std::int64_t read = 0;
    double waited = 0;
    double busy = 0;
  };

  [[nodiscard]] Traffic traffic() const;

 private:
  struct Request {
    bool is_write = false;
    std::int64_t record = 0;
    std::byte* buffer = nullptr;
  };

  Ticket enqueue(const Request& request);
  void work();
  void run(const Request& request) const;

  std::filesystem::path directory_;
  std::int64_t buffer_bytes_;
  int descriptor_ = -1;
  bool direct_ = false;

  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<Request> queue_;
  Ticket enqueued_ = 0;
  Ticket finished_ = 0;
  bool ends_ = false;
  std::exception_ptr failure_;
  Traffic traffic_;
  std::thread worker_;
};

}  // namespace longtune
