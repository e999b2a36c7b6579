#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace longtune {

/// Parses JSON text; `name` is what messages call it. Throws Error kBadInput, naming the byte, for
/// text that is no JSON, for a key that stands twice in one object, for nesting deeper than 64, and
/// for a number that overflows a double.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& name);

/// The most bytes of JSON that are read: parsed, they take several times as much.
constexpr std::int64_t kLargestJson = 64 * kMiB;

/// The whole of a file as JSON. Throws Error as read_whole and parse_json do.
[[nodiscard]] nlohmann::json read_json(const std::filesystem::path& path,
                                       std::int64_t largest = kLargestJson);

/// Typed access to an object's fields. A field that is null counts as absent. Throws Error
/// kBadInput, naming file and field, for a field of another type; the `required_` ones for an
/// absent field as well.
class JsonFields {
 public:
  /// Refers to `value`, which stays the caller's. `name`: "config.json", or "config.json:
  /// rope_scaling" for an object in it. Throws Error kBadInput where `value` is no object.
  JsonFields(const nlohmann::json& value, std::string name);

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Null where the field is absent or null.
  [[nodiscard]] const nlohmann::json* find(std::string_view key) const;

  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> string(std::string_view key) const;

  [[nodiscard]] std::int64_t required_integer(std::string_view key) const;
  [[nodiscard]] double required_number(std::string_view key) const;
  [[nodiscard]] std::string required_string(std::string_view key) const;

 private:
  const nlohmann::json* value_;
  std::string name_;
};

}  // namespace longtune
