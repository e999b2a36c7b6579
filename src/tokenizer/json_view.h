#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"

namespace longtune {

/// A place in a JSON file which knows its name, so that each complaint says "file: model.merges[3]
/// must be a string, not 7". Throws Error kBadInput where the file holds another type than asked
/// for. The JSON outlives the view.
class JsonView {
 public:
  JsonView(const nlohmann::json& json, std::string file) : json_(&json), file_(std::move(file)) {}

  [[nodiscard]] const nlohmann::json& json() const { return *json_; }

  /// "file: model.vocab", to begin a message with.
  [[nodiscard]] std::string where() const;

  /// Whether this is an object with a `key` that is not null.
  [[nodiscard]] bool has(const char* key) const;

  /// A member, which must be there; an element of an array, in range.
  [[nodiscard]] JsonView at(const char* key) const;
  [[nodiscard]] JsonView at(std::size_t index) const;

  /// A member that the caller has at hand from iterating over the object.
  [[nodiscard]] JsonView member(const std::string& key, const nlohmann::json& value) const {
    return {value, file_, path_ + "." + in_quotes(key)};
  }

  [[nodiscard]] std::string string() const;
  [[nodiscard]] bool boolean() const;

  /// A whole number in [0, 2^31).
  [[nodiscard]] std::int32_t index() const;

  /// The number of elements of an array.
  [[nodiscard]] std::size_t array_size() const;

  /// A member, or `otherwise` where it is absent or null.
  [[nodiscard]] bool boolean_or(const char* key, bool otherwise) const;
  [[nodiscard]] std::string string_or(const char* key, const std::string& otherwise) const;

  void expect_object() const;

 private:
  JsonView(const nlohmann::json& json, std::string file, std::string path)
      : json_(&json), file_(std::move(file)), path_(std::move(path)) {}

  [[noreturn]] void expected(const char* type) const;

  const nlohmann::json* json_;
  std::string file_;
  std::string path_;
};

}  // namespace longtune
