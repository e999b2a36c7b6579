#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "io/block_io.h"

namespace longtune {
namespace {

std::int64_t run(int descriptor, const BlockOperation& operation) {
  using Kind = BlockOperation::Kind;
  const auto bytes = static_cast<std::size_t>(operation.bytes);
  ssize_t result = 0;
  switch (operation.kind) {
    case Kind::kRead:
      result = pread(descriptor, operation.memory, bytes, operation.offset);
      break;
    case Kind::kWrite:
      result = pwrite(descriptor, operation.memory, bytes, operation.offset);
      break;
    case Kind::kSync:
      result = sync_file_range(
          descriptor,
          operation.offset,
          operation.bytes,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
      break;
    case Kind::kDrop:
      return -posix_fadvise(descriptor, operation.offset, operation.bytes, POSIX_FADV_DONTNEED);
  }
  return result < 0 ? -errno : result;
}

// The queue is an array, so that taking an operation needs no memory.
class ThreadIo final : public BlockIo {
 public:
  ThreadIo(int descriptor, Done done)
      : descriptor_(descriptor),
        done_(std::move(done)),
        worker_(start_io_thread([this] { work(); })) {}

  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    asked_.notify_one();
    worker_.join();
  }

  [[nodiscard]] std::string_view name() const override { return "one thread"; }

  [[nodiscard]] int start(const BlockOperation& operation) override {
    {
      const std::lock_guard lock(mutex_);
      queue_[(first_ + count_) % queue_.size()] = operation;
      ++count_;
    }
    asked_.notify_one();
    return 0;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_.wait(lock, [&] { return ends_ || count_ > 0; });
      if (count_ == 0) {
        return;
      }
      const BlockOperation operation = queue_[first_];
      first_ = (first_ + 1) % queue_.size();
      --count_;
      lock.unlock();
      done_(operation.owner, run(descriptor_, operation));
      lock.lock();
    }
  }

  int descriptor_;
  Done done_;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::array<BlockOperation, kQueueDepth> queue_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  bool ends_ = false;
  std::thread worker_;  // the last member: what it uses is there before it runs
};

}  // namespace

std::unique_ptr<BlockIo> make_thread_io(int descriptor, BlockIo::Done done) {
  return std::make_unique<ThreadIo>(descriptor, std::move(done));
}

}  // namespace longtune
