#include "io/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A file without a name; one with a name that is taken away at once where the file system has none
// such. Direct I/O is asked for afterwards: where it is refused on opening, the name is left
// behind.
int open_nameless(const std::filesystem::path& directory) {
  const int nameless = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) {
    return nameless;
  }
  std::string path = (directory / "longtune-spill-XXXXXX").string();
  const int named = mkostemp(path.data(), O_CLOEXEC);
  const int error = errno;
  if (named >= 0) {
    unlink(path.c_str());
  }
  errno = error;
  return named;
}

bool make_direct(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 && fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::int64_t bytes)
    : memory_(static_cast<std::byte*>(
          std::aligned_alloc(kAlignment, static_cast<std::size_t>(round_up(bytes, kAlignment))))) {
  if (memory_ == nullptr) {
    fail(ErrorCode::kIo, "spill", "the system refused {} of memory", format_bytes(bytes));
  }
  // What pads a record must not carry other memory to the disk.
  std::memset(memory_.get(), 0, static_cast<std::size_t>(round_up(bytes, kAlignment)));
}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

SpillFile::SpillFile(const std::filesystem::path& directory, std::int64_t record_bytes)
    : directory_(directory), buffer_bytes_(round_up(record_bytes, AlignedBuffer::kAlignment)) {
  descriptor_ = open_nameless(directory);
  if (descriptor_ < 0) {
    fail(ErrorCode::kIo,
         "spill",
         "no file can be made in {}: {}; --spill-dir names a directory on a fast disk",
         directory.string(),
         std::strerror(errno));
  }
  direct_ = make_direct(descriptor_);
  worker_ = std::thread([this] { work(); });
}

SpillFile::~SpillFile() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_one();
  worker_.join();
  close(descriptor_);
}

SpillFile::Ticket SpillFile::enqueue(const Request& request) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(request);
    ticket = ++enqueued_;
  }
  asked_.notify_one();
  return ticket;
}

SpillFile::Ticket SpillFile::write(std::int64_t record, const AlignedBuffer& from) {
  return enqueue({.is_write = true, .record = record, .buffer = from.data()});
}

SpillFile::Ticket SpillFile::read(std::int64_t record, const AlignedBuffer& to) {
  return enqueue({.is_write = false, .record = record, .buffer = to.data()});
}

void SpillFile::wait(Ticket ticket) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_ >= ticket; });
  traffic_.waited += seconds_since(start);
  if (failure_) {
    std::rethrow_exception(failure_);
  }
}

bool SpillFile::is_done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return finished_ >= ticket;
}

SpillFile::Traffic SpillFile::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

// After a failure the rest is dropped: every wait says why.
void SpillFile::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    const Request request = queue_.front();
    queue_.pop_front();
    if (!failure_) {
      lock.unlock();
      const auto start = Clock::now();
      std::exception_ptr failure;
      try {
        run(request);
      } catch (...) {
        failure = std::current_exception();
      }
      const double taken = seconds_since(start);
      lock.lock();
      failure_ = failure;
      traffic_.busy += taken;
      (request.is_write ? traffic_.written : traffic_.read) += buffer_bytes_;
    }
    ++finished_;
    done_.notify_all();
  }
}

void SpillFile::run(const Request& request) const {
  std::int64_t done = 0;
  while (done < buffer_bytes_) {
    const auto left = static_cast<std::size_t>(buffer_bytes_ - done);
    const off_t at = request.record * buffer_bytes_ + done;
    const ssize_t moved = request.is_write ? pwrite(descriptor_, request.buffer + done, left, at)
                                           : pread(descriptor_, request.buffer + done, left, at);
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      fail(ErrorCode::kIo,
           "spill",
           "{} {} of keys and values at {} of a file in {}: {}; --spill-dir may name another disk, "
           "and "
           "--kv-host keeps more in memory",
           request.is_write ? "writing" : "reading",
           format_bytes(buffer_bytes_),
           format_bytes(at),
           directory_.string(),
           moved == 0 ? "the file ends there" : std::strerror(errno));
    }
    done += moved;
  }
  if (!direct_) {  // what was written or read will not be read again soon
    posix_fadvise(descriptor_, request.record * buffer_bytes_, buffer_bytes_, POSIX_FADV_DONTNEED);
  }
}

}  // namespace longtune
