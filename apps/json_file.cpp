#include "apps/json_file.h"

#include <fstream>

#include "base/error.h"
#include "io/atomic_file.h"

namespace longtune::cli {
namespace {

namespace fs = std::filesystem;

/// Whether `path` is there and must be written to rather than replaced: /dev/stdout may lead to a
/// regular file, but is none.
[[nodiscard]] bool is_special_file(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at is refused when it is written
  const fs::file_status status = fs::symlink_status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

}  // namespace

void write_json(const fs::path& path, const Json& value) {
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!is_special_file(path)) {
    write_file(path, text);
    return;
  }
  std::ofstream file(path);
  if (!(file << text << std::flush)) {
    fail(ErrorCode::kIo, "output", "cannot write {}", path.string());
  }
}

void check_writable(const fs::path& path) {
  if (fs::is_directory(path)) {
    fail(ErrorCode::kIo, "output", "cannot write {}: it is a directory", path.string());
  }
  if (!is_special_file(path)) {
    const AtomicFile probe(path);
  }
}

}  // namespace longtune::cli
