#include <fcntl.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

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

// What may pass: a signal, or no memory for the call.
bool may_pass(int error) {
  return error == -EINTR || error == -EAGAIN || error == -EBUSY || error == -ENOMEM;
}

// Who starts an operation submits it; a thread collects what is done. The two ends of a ring are
// apart, so that neither waits for the other.
//
// Waiting for what is done may be refused. What the kernel had done by then is still found in the
// ring without its help, so a refusal that cannot pass counts only once it lasted for a second.
class RingIo final : public BlockIo {
 public:
  RingIo(std::unique_ptr<Ring> ring, int descriptor, Done done)
      : ring_(std::move(ring)),
        descriptor_(descriptor),
        done_(std::move(done)),
        in_flight_(reserved()),
        ended_early_(reserved()),
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
    {
      const std::lock_guard lock(mutex_);
      if (lasting_error_ != 0) {
        return lasting_error_;
      }
    }
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
      if (!remove_one(ended_early_, operation.owner)) {
        in_flight_.push_back(operation.owner);
      }
    }
    started_.notify_one();
    return 0;
  }

 private:
  static constexpr int kMostRefusals = 1000;  ///< a millisecond apart

  // Room for all that may be in flight, and for one that is started while the end of another is
  // being told: noting it takes no memory.
  static std::vector<void*> reserved() {
    std::vector<void*> owners;
    owners.reserve(kQueueDepth + 1);
    return owners;
  }

  static bool remove_one(std::vector<void*>& owners, void* owner) {
    const auto place = std::ranges::find(owners, owner);
    const bool found = place != owners.end();
    if (found) {
      owners.erase(place);
    }
    return found;
  }

  // False once there is nothing left to come.
  bool wait_for_start() {
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return ends_ || !in_flight_.empty(); });
    return !in_flight_.empty();
  }

  // Takes one operation off what is in flight. Its end may be seen before start() has noted it.
  void take_off(void* owner) {
    const std::lock_guard lock(mutex_);
    if (!remove_one(in_flight_, owner)) {
      ended_early_.push_back(owner);
    }
  }

  // Ends what is in flight with `error`, as nobody will say what becomes of it.
  void give_up(int error) {
    std::vector<void*> owners;
    {
      const std::lock_guard lock(mutex_);
      lasting_error_ = error;
      owners.swap(in_flight_);
    }
    for (void* const owner : owners) {
      done_(owner, -error);
    }
  }

  void collect() {
    int refusals = 0;
    int last_refusal = 0;
    while (wait_for_start()) {
      if (refusals >= kMostRefusals) {  // for good: nothing is taken out of the ring any more
        give_up(-last_refusal);
        continue;
      }
      io_uring_cqe* entry = nullptr;
      const int error = io_uring_wait_cqe(ring_->get(), &entry);
      if (error == 0) {
        refusals = 0;
        void* const owner = io_uring_cqe_get_data(entry);
        const std::int64_t result = entry->res;
        io_uring_cqe_seen(ring_->get(), entry);
        done_(owner, result);
        take_off(owner);
        continue;
      }
      if (!may_pass(error)) {
        last_refusal = error;
        ++refusals;
      }
      if (error != -EINTR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  std::unique_ptr<Ring> ring_;
  int descriptor_;
  Done done_;
  std::mutex mutex_;
  std::condition_variable started_;
  std::vector<void*> in_flight_;    ///< owners
  std::vector<void*> ended_early_;  ///< owners of operations that ended before start() returned
  int lasting_error_ = 0;           ///< an errno: the ring is of no use any more
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
