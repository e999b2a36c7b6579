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

// A name beside `path` that no other writer uses, in this process or another; something left by a
// killed one, or put there on purpose, may have it all the same.
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

// Calls `make` with partial names until it returns no negative number, and sets `partial` to the
// name that it took. `make` must refuse a name that something has already, a link too, with EEXIST.
template <class Make>
int make_partial(const char* action, const fs::path& path, fs::path& partial, const Make& make) {
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries; ++i) {
    partial = partial_name(path);
    const int result = make(partial.c_str());
    if (result >= 0) {
      return result;
    }
    if (errno != EEXIST) {
      break;
    }
  }
  refuse(action, path, errno);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path)
    : path_(path), descriptor_(make_partial("write", path, partial_, [](const char* name) {
        return open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      })) {}

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

AtomicDirectory::AtomicDirectory(const fs::path& path) : path_(path) {
  make_partial("make", path, partial_, [](const char* name) { return mkdir(name, 0777); });
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void AtomicDirectory::commit() {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(partial_, error), end; !error && entry != end;
       entry.increment(error)) {
    sync_path(entry->path());
  }
  if (error) {
    refuse("write", path_, error.value());
  }
  sync_path(partial_);
  // Where there is one already, the two change places, so that at no moment there is none; the
  // destructor removes the old one.
  const bool replaces = fs::exists(fs::symlink_status(path_, error));
  const unsigned flags = replaces ? RENAME_EXCHANGE : 0U;
  if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0) {
    // Some file systems cannot exchange; they say so with EINVAL.
    if (!replaces || errno != EINVAL) {
      refuse("write", path_, errno);
    }
    replace_in_two_steps();
  }
  sync_parent(path_);
}

void AtomicDirectory::replace_in_two_steps() {
  const fs::path aside = partial_name(path_);
  if (rename(path_.c_str(), aside.c_str()) != 0) {
    refuse("write", path_, errno);
  }
  if (rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    (void)rename(aside.c_str(), path_.c_str());
    refuse("write", path_, error);
  }
  partial_ = aside;
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
