#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "io/block_io.h"

namespace longtune {
namespace {

// A ring of its own. Not every kernel that has io_uring has the operations that are needed.
class Ring {
 public:
  Ring() { usable_ = io_uring_queue_init(BlockIo::kQueueDepth, &ring_, 0) == 0; }

  ~Ring() {
    if (usable_) {
      io_uring_queue_exit(&ring_);
    }
  }

  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] io_uring* get() { return &ring_; }

  [[nodiscard]] bool is_usable() {
    if (!usable_) {
      return false;
    }
    const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(
        io_uring_get_probe_ring(&ring_), io_uring_free_probe);
    constexpr std::array kNeeded = {
        IORING_OP_READ, IORING_OP_WRITE, IORING_OP_SYNC_FILE_RANGE, IORING_OP_FADVISE};
    return probe && std::ranges::all_of(kNeeded, [&](int operation) {
             return io_uring_opcode_supported(probe.get(), operation) != 0;
           });
  }

 private:
  io_uring ring_{};
  bool usable_ = false;
};

void prepare(io_uring_sqe* entry, int descriptor, const BlockOperation& operation) {
  using Kind = BlockOperation::Kind;
  const auto bytes = static_cast<unsigned>(operation.bytes);
  const auto offset = static_cast<std::uint64_t>(operation.offset);
  switch (operation.kind) {
    case Kind::kRead:
      io_uring_prep_read(entry, descriptor, operation.memory, bytes, offset);
      break;
    case Kind::kWrite:
      io_uring_prep_write(entry, descriptor, operation.memory, bytes, offset);
      break;
    case Kind::kSync:
      io_uring_prep_sync_file_range(
          entry,
          descriptor,
          bytes,
          offset,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
      break;
    case Kind::kDrop:
      io_uring_prep_fadvise(entry, descriptor, offset, operation.bytes, POSIX_FADV_DONTNEED);
      break;
  }
  io_uring_sqe_set_data(entry, operation.owner);
}

// Who starts an operation submits it; a thread collects what is done. The two ends of a ring are
// apart, so that neither waits for the other.
class RingIo final : public BlockIo {
 public:
  RingIo(std::unique_ptr<Ring> ring, int descriptor, Done done)
      : ring_(std::move(ring)),
        descriptor_(descriptor),
        done_(std::move(done)),
        collector_(start_io_thread([this] { collect(); })) {}

  ~RingIo() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    started_.notify_one();
    collector_.join();
  }

  [[nodiscard]] std::string_view name() const override { return "io_uring"; }

  // An entry that the kernel did not take stays in the ring: the next submission would take it,
  // with memory that may be gone. Hence nothing is started after a refusal.
  [[nodiscard]] int start(const BlockOperation& operation) override {
    io_uring_sqe* entry = io_uring_get_sqe(ring_->get());
    if (entry == nullptr) {
      return EBUSY;
    }
    prepare(entry, descriptor_, operation);
    int taken = -EINTR;
    while (taken == -EINTR) {
      taken = io_uring_submit(ring_->get());
    }
    if (taken != 1) {
      return taken < 0 ? -taken : EAGAIN;
    }
    {
      const std::lock_guard lock(mutex_);
      ++in_flight_;
    }
    started_.notify_one();
    return 0;
  }

 private:
  // False once there is nothing left to come.
  bool wait_for_start() {
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return ends_ || in_flight_ > 0; });
    return in_flight_ > 0;
  }

  void collect() {
    while (wait_for_start()) {
      io_uring_cqe* entry = nullptr;
      const int error = io_uring_wait_cqe(ring_->get(), &entry);
      if (error != 0) {  // a signal, or no memory for the call: what is in flight still comes
        if (error != -EINTR) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        continue;
      }
      void* const owner = io_uring_cqe_get_data(entry);
      const std::int64_t result = entry->res;
      io_uring_cqe_seen(ring_->get(), entry);
      done_(owner, result);
      const std::lock_guard lock(mutex_);
      --in_flight_;
    }
  }

  std::unique_ptr<Ring> ring_;
  int descriptor_;
  Done done_;
  std::mutex mutex_;
  std::condition_variable started_;
  int in_flight_ = 0;
  bool ends_ = false;
  std::thread collector_;  // the last member: what it uses is there before it runs
};

}  // namespace

std::unique_ptr<BlockIo> make_ring_io(int descriptor, BlockIo::Done done) {
  auto ring = std::make_unique<Ring>();
  if (!ring->is_usable()) {
    return nullptr;
  }
  return std::make_unique<RingIo>(std::move(ring), descriptor, std::move(done));
}

}  // namespace longtune
