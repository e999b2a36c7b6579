#include "io/spill_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

using Kind = BlockOperation::Kind;

std::int64_t padded(std::int64_t record_bytes) {
  if (record_bytes <= 0 || record_bytes > kGiB) {
    fail(ErrorCode::kInvalidArgument,
         "spill",
         "records of {} bytes: from 1 to {} are possible",
         record_bytes,
         kGiB);
  }
  return round_up(record_bytes, AlignedBuffer::kAlignment);
}

// A file without a name; one with a name that is taken away at once where the file system has none
// such. Direct I/O is asked for afterwards: where it is refused on opening, the name is left
// behind.
int open_nameless(const std::filesystem::path& directory) {
  const int nameless = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  int error = errno;
  if (nameless >= 0) {
    return nameless;
  }
  if (error == EOPNOTSUPP || error == EISDIR || error == EINVAL) {
    std::string path = (directory / "longtune-spill-XXXXXX").string();
    const int named = mkostemp(path.data(), O_CLOEXEC);
    error = errno;
    if (named >= 0) {
      unlink(path.c_str());
      return named;
    }
  }
  fail(ErrorCode::kIo,
       "spill",
       "no file can be made in {}: {}; --spill-dir names a directory on a fast disk",
       directory.string(),
       std::generic_category().message(error));
}

bool set_direct(int descriptor, bool direct) {
  const int flags = fcntl(descriptor, F_GETFL);
  return flags >= 0 &&
         fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Waiting for the disk is not known everywhere; then the cache keeps what it keeps.
bool means_unknown(std::int64_t result) {
  return result == -EINVAL || result == -ENOSYS || result == -EOPNOTSUPP || result == -ESPIPE;
}

}  // namespace

void check_spill_directory(const std::filesystem::path& directory) {
  close(open_nameless(directory));
}

std::optional<std::int64_t> spill_room(const std::filesystem::path& directory) {
  constexpr std::uintmax_t kMost = std::numeric_limits<std::int64_t>::max();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error || space.capacity == 0) {  // some that live in a network say nothing
    return std::nullopt;
  }
  rlimit file{};
  if (getrlimit(RLIMIT_FSIZE, &file) != 0) {
    file.rlim_cur = RLIM_INFINITY;  // the largest number
  }
  return static_cast<std::int64_t>(
      std::min({kMost, space.available, static_cast<std::uintmax_t>(file.rlim_cur)}));
}

SpillFile::Descriptor::~Descriptor() {
  close(number_);
}

SpillFile::SpillFile(const std::filesystem::path& directory,
                     std::int64_t record_bytes,
                     const BlockIoMaker& make_io)
    : directory_(directory),
      buffer_bytes_(padded(record_bytes)),
      descriptor_(open_nameless(directory)),
      direct_(set_direct(descriptor_.number(), true)),
      io_(make_io(descriptor_.number(), [this](void* owner, std::int64_t result) {
        on_done(*static_cast<Request*>(owner), result);
      })) {
  if (!io_) {
    fail(ErrorCode::kUnsupported, "spill", "the system does not allow this way of doing I/O");
  }
}

SpillFile::~SpillFile() {
  std::unique_lock lock(mutex_);
  order_.drop_waiting();
  done_.wait(lock, [&] { return order_.is_empty(); });
}

bool SpillFile::is_direct() const {
  const std::lock_guard lock(mutex_);
  return direct_;
}

SpillFile::Ticket SpillFile::ask(std::int64_t record, bool is_write, std::byte* buffer) {
  const auto end = checked_add(record, 1);
  if (record < 0 || !end || !checked_mul(*end, buffer_bytes_)) {
    fail(ErrorCode::kInvalidArgument, "spill", "no file has a record {}", record);
  }
  const std::lock_guard lock(mutex_);
  const Ticket ticket = order_.add(record, is_write, buffer);
  start_ready();
  return ticket;
}

SpillFile::Ticket SpillFile::write(std::int64_t record, const AlignedBuffer& from) {
  return ask(record, true, from.data());
}

SpillFile::Ticket SpillFile::read(std::int64_t record, const AlignedBuffer& to) {
  return ask(record, false, to.data());
}

void SpillFile::wait(Ticket ticket) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return !order_.has(ticket); });
  traffic_.waited += std::chrono::duration<double>(Clock::now() - start).count();
  if (failure_) {
    throw_failure();
  }
}

bool SpillFile::is_done(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return !order_.has(ticket);
}

SpillFile::Traffic SpillFile::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

void SpillFile::start_ready() {
  while (!failure_ && in_flight_ < BlockIo::kQueueDepth) {
    Request* request = order_.take();
    if (request == nullptr) {
      return;
    }
    request->step = request->is_write ? Kind::kWrite : Kind::kRead;
    start(*request);
  }
  if (failure_) {
    order_.drop_waiting();
    done_.notify_all();
  }
}

void SpillFile::start(Request& request) {
  if (in_flight_++ == 0) {
    busy_since_ = Clock::now();
  }
  request.was_direct = direct_;
  const bool moves = request.step == Kind::kRead || request.step == Kind::kWrite;
  const std::int64_t from = moves ? request.moved : 0;
  const int refused = io_->start({.kind = request.step,
                                  .offset = request.record * buffer_bytes_ + from,
                                  .bytes = buffer_bytes_ - from,
                                  .memory = request.buffer + from,
                                  .owner = &request});
  if (refused != 0) {
    count_down();
    fail_with(request, -refused);
    order_.finish(request);
  }
}

void SpillFile::count_down() {
  if (--in_flight_ == 0) {
    traffic_.busy += std::chrono::duration<double>(Clock::now() - busy_since_).count();
  }
}

void SpillFile::on_done(Request& request, std::int64_t result) {
  const std::lock_guard lock(mutex_);
  count_down();
  // After a failure nothing goes on: every wait says why.
  if (!failure_ && advance(request, result)) {
    start(request);
  } else {
    order_.finish(request);
  }
  start_ready();
  done_.notify_all();
}

// Whether a request whose step has ended needs another one, which is then its step.
bool SpillFile::advance(Request& request, std::int64_t result) {
  if (request.step == Kind::kDrop) {
    return false;
  }
  // io_uring cancels what a thread asked for that ends.
  if (result == -EINTR || result == -ECANCELED) {
    return true;
  }
  if (request.step == Kind::kSync) {
    if (result < 0 && !means_unknown(result)) {
      fail_with(request, result);
      return false;
    }
    request.step = Kind::kDrop;
    return true;
  }
  // Direct I/O that the file system allowed but does not do, or cannot go on with after a part of
  // a block.
  if (result == -EINVAL && request.was_direct && set_direct(descriptor_.number(), false)) {
    direct_ = false;
    return true;
  }
  if (result <= 0) {
    fail_with(request, result);
    return false;
  }
  request.moved += result;
  if (request.moved < buffer_bytes_) {
    return true;
  }
  (request.is_write ? traffic_.written : traffic_.read) += buffer_bytes_;
  // The cache forgets only what is on the disk already.
  request.step = request.is_write ? Kind::kSync : Kind::kDrop;
  return !direct_;
}

void SpillFile::fail_with(const Request& request, std::int64_t result) {
  if (!failure_) {
    failure_ = {
        .is_write = request.is_write, .record = request.record, .error = static_cast<int>(-result)};
  }
}

void SpillFile::throw_failure() const {
  const char* nothing = failure_->is_write ? "nothing was written" : "the file ends there";
  fail(ErrorCode::kIo,
       "spill",
       "{} {} of keys and values at {} of a file in {}: {}; --spill-dir may name another disk, and "
       "--kv-host keeps more in memory",
       failure_->is_write ? "writing" : "reading",
       format_bytes(buffer_bytes_),
       format_bytes(failure_->record * buffer_bytes_),
       directory_.string(),
       failure_->error == 0 ? nothing : std::generic_category().message(failure_->error));
}

}  // namespace longtune
