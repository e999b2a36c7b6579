#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = ".partial-";

[[noreturn]] void refuse(const char* action, const fs::path& path, int error) {
  const std::string reason = std::generic_category().message(error);
  fail(ErrorCode::kIo, "file", "cannot {} {}: {}", action, path.string(), reason);
}

// A name beside `path` that no other writer uses, in this process or another.
fs::path partial_name(const fs::path& path) {
  static std::atomic<int> count{0};
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  const std::string name =
      fmt::format(".{}{}{}-{}", clean.filename().string(), kMark, getpid(), count++);
  return clean.parent_path() / name;
}

void sync_path(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    refuse("open", path, errno);
  }
  const int error = fsync(descriptor) != 0 ? errno : 0;
  close(descriptor);
  // Some file systems cannot sync directories; they say so with EINVAL.
  if (error != 0 && error != EINVAL) {
    refuse("write", path, error);
  }
}

void sync_parent(const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  sync_path(clean.parent_path().empty() ? fs::path(".") : clean.parent_path());
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path), partial_(partial_name(path)) {
  descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    refuse("write", path_, errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
  if (!committed_) {
    unlink(partial_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) {
    fail(ErrorCode::kInternal, "file", "{} is written after its commit", path_.string());
  }
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      refuse("write", path_, count < 0 ? errno : EIO);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  if (descriptor_ < 0) {
    fail(ErrorCode::kInternal, "file", "{} is committed twice", path_.string());
  }
  if (fsync(descriptor_) != 0) {
    refuse("write", path_, errno);
  }
  const int error = close(descriptor_) != 0 ? errno : 0;
  descriptor_ = -1;
  if (error != 0) {
    refuse("write", path_, error);
  }
  if (rename(partial_.c_str(), path_.c_str()) != 0) {
    refuse("write", path_, errno);
  }
  committed_ = true;
  sync_parent(path_);
}

AtomicDirectory::AtomicDirectory(const fs::path& path) : path_(path), partial_(partial_name(path)) {
  if (mkdir(partial_.c_str(), 0777) != 0) {
    refuse("make", path_, errno);
  }
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void AtomicDirectory::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(partial_)) {
    sync_path(entry.path());
  }
  sync_path(partial_);
  // Where there is one already, the two change places, so that at no moment there is none; the
  // destructor removes the old one.
  const bool replaces = fs::exists(fs::symlink_status(path_));
  const unsigned flags = replaces ? RENAME_EXCHANGE : 0U;
  if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    refuse("write", path_, errno);
  }
  sync_parent(path_);
}

void write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void remove_directory(const fs::path& path) {
  const fs::path aside = partial_name(path);
  if (rename(path.c_str(), aside.c_str()) != 0) {
    refuse("remove", path, errno);
  }
  std::error_code error;
  fs::remove_all(aside, error);
  if (error) {
    refuse("remove", path, error.value());
  }
}

void remove_partials(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') && name.find(kMark) != std::string::npos) {
      found.push_back(entry->path());
    }
  }
  for (auto path = found.begin(); path != found.end() && !error; ++path) {
    fs::remove_all(*path, error);
  }
  if (error) {
    refuse("clean", directory, error.value());
  }
}

}  // namespace longtune
