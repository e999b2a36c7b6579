#include "io/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace longtune {
namespace {

// Closes the descriptor of a file that is given up while it is being opened.
[[noreturn]] void refuse(int descriptor, ErrorCode code, const std::string& message) {
  close(descriptor);
  fail(code, "file", "{}", message);
}

void check_range(const std::string& name,
                 std::int64_t size,
                 std::int64_t offset,
                 std::size_t want) {
  if (offset < 0 || offset > size || want > static_cast<std::uint64_t>(size - offset)) {
    fail(ErrorCode::kBadInput,
         "file",
         "{}: ends at byte {}, but {} bytes are needed from byte {} on",
         name,
         size,
         want,
         offset);
  }
}

}  // namespace

File::File(const std::filesystem::path& path) : name_(path.string()) {
  // O_NONBLOCK: a named pipe must be refused below, not waited for.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    const std::string reason = std::generic_category().message(errno);
    fail(absent ? ErrorCode::kBadInput : ErrorCode::kIo,
         "file",
         "cannot open {}: {}",
         name_,
         reason);
  }

  struct stat status {};

  if (fstat(descriptor_, &status) != 0) {
    const std::string reason = std::generic_category().message(errno);
    refuse(descriptor_, ErrorCode::kIo, fmt::format("cannot examine {}: {}", name_, reason));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(descriptor_, ErrorCode::kBadInput, fmt::format("{} is no regular file", name_));
  }
  size_ = status.st_size;
}

File::~File() {
  close(descriptor_);
}

void File::read_at(std::int64_t offset, std::span<std::byte> target) const {
  check_range(name_, size_, offset, target.size());
  while (!target.empty()) {
    const ssize_t got = pread(descriptor_, target.data(), target.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      const std::string reason = std::generic_category().message(errno);
      fail(ErrorCode::kIo, "file", "cannot read {} at byte {}: {}", name_, offset, reason);
    }
    if (got == 0) {
      fail(ErrorCode::kBadInput,
           "file",
           "{}: ends at byte {}; it had {} bytes when it was opened",
           name_,
           offset,
           size_);
    }
    target = target.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::string read_whole(const std::filesystem::path& path, std::int64_t largest) {
  const File file(path);
  if (file.size() > largest) {
    fail(ErrorCode::kBadInput,
         "file",
         "{}: has {} bytes; at most {} are read",
         file.name(),
         file.size(),
         largest);
  }
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void MemoryReader::read_at(std::int64_t offset, std::span<std::byte> target) const {
  check_range(name_, size(), offset, target.size());
  if (!target.empty()) {
    std::memcpy(target.data(), bytes_.data() + offset, target.size());
  }
}

}  // namespace longtune
