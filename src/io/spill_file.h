#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "io/aligned_buffer.h"
#include "io/block_io.h"
#include "io/request_order.h"

namespace longtune {

/// Throws Error kIo, naming the directory, where a SpillFile could not be made there. Leaves
/// nothing behind.
void check_spill_directory(const std::filesystem::path& directory);

/// Bytes that a SpillFile in `directory` can grow to: what is free there for this user, and no more
/// than the process may write to one file. Nothing where the system does not say.
[[nodiscard]] std::optional<std::int64_t> spill_room(const std::filesystem::path& directory);

/// A file of equal records that lives as long as this object and no longer: it has no name, so that
/// nothing is left of it however the process ends. Past the page cache where the file system allows
/// (direct I/O); where it does not, the cache is told to forget each record once it is on the disk.
/// Reads and writes run behind the caller, up to BlockIo::kQueueDepth at once. Those on one record
/// run in the order in which they were asked for, others in any.
class SpillFile {
 public:
  /// Throws Error kIo, naming the directory, where no file can be made there, and where the system
  /// refuses a thread; kInvalidArgument for records of no bytes or of more than 1 GiB; kUnsupported
  /// where `make_io` makes nothing.
  SpillFile(const std::filesystem::path& directory,
            std::int64_t record_bytes,
            const BlockIoMaker& make_io = make_block_io);

  /// Waits for what has begun and drops the rest; never throws.
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// Bytes of a buffer for one record: record_bytes rounded up for direct I/O.
  [[nodiscard]] std::int64_t buffer_bytes() const { return buffer_bytes_; }

  /// How requests are done: "io_uring", or "one thread" where the system does not allow that.
  [[nodiscard]] std::string_view method() const { return io_->name(); }

  /// Whether requests go past the page cache. Some file systems refuse that only once it is tried:
  /// what is true first may become false.
  [[nodiscard]] bool is_direct() const;

  /// What was asked for, to be waited for. Tickets are positive; other numbers, and tickets long
  /// done, may be waited for as well and are done.
  using Ticket = RequestOrder::Ticket;

  /// Buffers are AlignedBuffers of buffer_bytes() and stay as they are until the ticket was waited
  /// for, whether or not that threw. Throw Error kInvalidArgument for a record that is negative or
  /// that no file reaches.
  [[nodiscard]] Ticket write(std::int64_t record, const AlignedBuffer& from);
  [[nodiscard]] Ticket read(std::int64_t record, const AlignedBuffer& to);

  /// Returns once the ticket's request is done. Throws Error kIo, naming directory and place, "no
  /// space left" among the reasons, where it or any other request failed before now: the first
  /// failure ends the file's use. What had not begun by then is dropped, and every later wait, for
  /// whichever ticket, throws the same.
  void wait(Ticket ticket);

  [[nodiscard]] bool is_done(Ticket ticket) const;

  /// Bytes of records written and read so far, seconds that wait() took and seconds in which
  /// anything was in flight.
  struct Traffic {
    std::int64_t written = 0;
    std::int64_t read = 0;
    double waited = 0;
    double busy = 0;
  };

  [[nodiscard]] Traffic traffic() const;

 private:
  using Request = RequestOrder::Request;
  using Clock = std::chrono::steady_clock;

  /// An open file, closed at the end.
  class Descriptor {
   public:
    explicit Descriptor(int number) : number_(number) {}

    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    [[nodiscard]] int number() const { return number_; }

   private:
    int number_;
  };

  struct Failure {
    bool is_write = false;
    std::int64_t record = 0;
    int error = 0;  ///< an errno; 0: nothing was moved
  };

  Ticket ask(std::int64_t record, bool is_write, std::byte* buffer);
  // With the mutex held, and none of them takes memory:
  void start_ready();
  void start(Request& request);
  bool advance(Request& request, std::int64_t result);
  void fail_with(const Request& request, std::int64_t result);
  void count_down();
  // On the BlockIo's thread.
  void on_done(Request& request, std::int64_t result);
  [[noreturn]] void throw_failure() const;

  std::filesystem::path directory_;
  std::int64_t buffer_bytes_;
  Descriptor descriptor_;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  bool direct_ = false;
  RequestOrder order_;
  int in_flight_ = 0;
  Clock::time_point busy_since_;
  std::optional<Failure> failure_;
  Traffic traffic_;
  std::unique_ptr<BlockIo> io_;  ///< the last member: it ends before what it works on
};

}  // namespace longtune
