#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "model/rope_override.h"

namespace longtune::cli {

/// A value that an option cannot take; what() says why, and the caller adds which option.
class BadValue : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// A size in bytes, as "16GiB" is typed; its own type, so that it is not read as a plain number.
struct Size {
  std::int64_t bytes = 0;
};

/// How long the learning rate rises: a number of steps, or a share of all.
struct Warmup {
  std::int64_t steps = 0;
  std::optional<double> percent;  ///< given: steps does not count

  [[nodiscard]] std::int64_t steps_of(std::int64_t all) const;
};

/// Reads one value from its text. Throws BadValue.
void parse_value(std::string_view text, bool& value);
void parse_value(std::string_view text, std::int64_t& value);
void parse_value(std::string_view text, std::uint64_t& value);
void parse_value(std::string_view text, double& value);
void parse_value(std::string_view text, std::string& value);
void parse_value(std::string_view text, std::filesystem::path& value);
void parse_value(std::string_view text, Size& value);
void parse_value(std::string_view text, Warmup& value);

/// "file" (what the model's file says), "none", "linear:2", "yarn:1.5".
void parse_value(std::string_view text, RopeChoice& value);

/// "0,512,1024": whole numbers, separated by commas.
void parse_value(std::string_view text, std::vector<std::int64_t>& value);

template <class T>
void parse_value(std::string_view text, std::optional<T>& value) {
  T parsed{};
  parse_value(text, parsed);
  value = parsed;
}

/// The text that parse_value reads back to the same value.
[[nodiscard]] std::string text_of(bool value);
[[nodiscard]] std::string text_of(std::int64_t value);
[[nodiscard]] std::string text_of(std::uint64_t value);
[[nodiscard]] std::string text_of(double value);
[[nodiscard]] std::string text_of(const std::string& value);
[[nodiscard]] std::string text_of(const std::filesystem::path& value);
[[nodiscard]] std::string text_of(const Size& value);
[[nodiscard]] std::string text_of(const Warmup& value);
[[nodiscard]] std::string text_of(const std::vector<std::int64_t>& value);
using longtune::text_of;  // of RopeChoice

/// Nothing where there is no value.
template <class T>
[[nodiscard]] std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : std::string();
}

/// Pieces of `text` between commas, blanks around them left out.
[[nodiscard]] std::vector<std::string> split_commas(std::string_view text);

/// The one of `known` that `name` was probably meant to be; nothing where none is near.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view name,
                                                      const std::vector<std::string>& known);

}  // namespace longtune::cli
