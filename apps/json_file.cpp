#include "apps/json_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "io/atomic_file.h"

namespace longtune::cli {
namespace {

namespace fs = std::filesystem;

/// Whether `path` must be written on to rather than replaced: a device, a pipe, or a name for a
/// file that is open already, like /dev/stdout, whatever that leads to.
[[nodiscard]] bool is_stream(const fs::path& path) {
  const std::string absolute = fs::absolute(path).lexically_normal().string();
  for (const char* prefix : {"/dev/std", "/dev/fd/", "/proc/"}) {
    if (absolute.starts_with(prefix)) {
      return true;
    }
  }
  std::error_code ignored;  // what cannot be looked at is refused when it is written
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

[[noreturn]] void fail_to_write(const fs::path& path) {
  fail(ErrorCode::kIo, "output", "cannot write {}: {}", path.string(), std::strerror(errno));
}

/// Where a link leads, so that the file is replaced and not the link.
[[nodiscard]] fs::path target_of(const fs::path& path) {
  std::error_code ignored;
  return fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path;
}

}  // namespace

void write_json(const fs::path& path, const Json& value) {
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!is_stream(path)) {
    write_file(target_of(path), text);
    return;
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "a"),
                                                             &std::fclose);
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0) {
    fail_to_write(path);
  }
}

void check_writable(const fs::path& path) {
  if (fs::is_directory(path)) {
    fail(ErrorCode::kIo, "output", "cannot write {}: it is a directory", path.string());
  }
  if (!is_stream(path)) {
    const AtomicFile probe(target_of(path));
  }
}

}  // namespace longtune::cli
