#include "apps/console.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace longtune::cli {
namespace {

[[noreturn]] void fail_to_write() {
  fail(ErrorCode::kIo, "output", "standard output cannot be written: {}", std::strerror(errno));
}

}  // namespace

void write_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    fail_to_write();
  }
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail_to_write();
  }
}

void write_notice(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace longtune::cli
