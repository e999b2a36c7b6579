#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace longtune {

/// What kind of thing went wrong; the CLI maps it to an exit status, the server to an HTTP status.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< The caller's shapes, dtypes or options do not fit.
  kBadInput,         ///< A file or request is malformed.
  kIo,               ///< The operating system refused.
  kOutOfBudget,      ///< A planned memory budget is too small.
  kUnsupported,      ///< Not in this build or on this device.
  kInternal,         ///< A fault of ours: a state that the code rules out.
};

/// The one exception type of the library. `what()` reads "[where] what happened".
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// Throws Error with "[where] " before the formatted text.
template <class... Args>
[[noreturn]] void fail(ErrorCode code,
                       const char* where,
                       fmt::format_string<Args...> format,
                       Args&&... args) {
  throw Error(code,
              fmt::format("[{}] {}", where, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace longtune
