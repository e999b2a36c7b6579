#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace longtune::cli {

/// Writes to standard output. Throws Error kIo where that cannot be written.
void write_output(std::string_view text);

/// Makes what was written certain to have been: a full disk must not pass for success. Throws Error
/// kIo where it was not.
void flush_output();

/// Writes to standard error. A failure goes unnoticed, as nobody could be told.
void write_notice(std::string_view text);

/// Formatted text to standard output, as write_output.
template <class... Args>
void print_output(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

/// Formatted text to standard error, as write_notice.
template <class... Args>
void print_notice(fmt::format_string<Args...> format, Args&&... args) {
  write_notice(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longtune::cli
