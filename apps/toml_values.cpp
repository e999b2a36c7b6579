#include "apps/toml_values.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "io/reader.h"

namespace longtune::cli {
namespace {

constexpr std::int64_t kLargestFile = 1024 * 1024;

/// Flattens tables into values.
class Flattener {
 public:
  explicit Flattener(const std::string& file) : file_(file) {}

  void add(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* inner = node.as_table()) {
        add(*inner, name + ".");
        continue;
      }
      TomlValue& value = values_.emplace_back();
      value.name = name;
      value.line = static_cast<std::int64_t>(node.source().begin.line);
      if (const toml::array* array = node.as_array()) {
        value.is_array = true;
        for (const toml::node& element : *array) {
          value.texts.push_back(text_of(element, value));
        }
      } else {
        value.texts.push_back(text_of(node, value));
      }
    }
  }

  [[nodiscard]] std::vector<TomlValue> take() {
    std::ranges::stable_sort(values_, {}, &TomlValue::line);
    return std::move(values_);
  }

 private:
  [[nodiscard]] std::string text_of(const toml::node& node, const TomlValue& value) const {
    if (const auto* text = node.as_string()) {
      return text->get();
    }
    if (const auto* number = node.as_integer()) {
      return fmt::format("{}", number->get());
    }
    if (const auto* number = node.as_floating_point()) {
      return fmt::format("{}", number->get());
    }
    if (const auto* truth = node.as_boolean()) {
      return truth->get() ? "true" : "false";
    }
    fail(ErrorCode::kBadInput,
         "options",
         "{}:{}: {} is neither text, number, true or false, nor a list of them",
         file_,
         value.line,
         value.name);
  }

  const std::string& file_;
  std::vector<TomlValue> values_;
};

}  // namespace

std::vector<TomlValue> read_toml(const std::filesystem::path& path) {
  const File file(path);
  if (file.size() > kLargestFile) {
    fail(ErrorCode::kBadInput,
         "options",
         "{} has {} bytes, too many for a configuration file",
         file.name(),
         file.size());
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  Flattener flattener(file.name());
  try {
    flattener.add(toml::parse(text), "");
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::kBadInput,
         "options",
         "{}:{}: is no TOML: {}",
         file.name(),
         error.source().begin.line,
         error.description());
  }
  return flattener.take();
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

bool is_toml_number(std::string_view text) {
  std::int64_t whole = 0;
  return std::from_chars(text.data(), text.data() + text.size(), whole).ec == std::errc{};
}

}  // namespace longtune::cli
