#include "io/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "io/reader.h"

namespace longtune {
namespace {

using nlohmann::json;

constexpr int kDeepest = 64;

// Sees every event of the parser: nlohmann::json itself keeps the last of two equal keys in
// silence, and builds nested arrays as deep as the text goes.
class Watch {
 public:
  explicit Watch(const std::string& name) : name_(name) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (depth > kDeepest) {
      fail(ErrorCode::kBadInput, "json", "{}: is nested deeper than {}", name_, kDeepest);
    }
    if (event == json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) {
        fail(ErrorCode::kBadInput, "json", "{}: has key {} twice", name_, in_quotes(key));
      }
    }
    return true;
  }

 private:
  const std::string& name_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_json(std::string_view text, const std::string& name) {
  // Shared, as the parser keeps a copy of its callback.
  Watch watch(name);
  const auto callback = [&watch](int depth, json::parse_event_t event, json& parsed) {
    return watch(depth, event, parsed);
  };
  try {
    return json::parse(text, callback);
  } catch (const json::parse_error& error) {
    fail(ErrorCode::kBadInput, "json", "{}: is no valid JSON at byte {}", name, error.byte);
  } catch (const json::exception&) {
    fail(ErrorCode::kBadInput, "json", "{}: holds a number that no machine number can hold", name);
  }
}

json read_json(const std::filesystem::path& path, std::int64_t largest) {
  const File file(path);
  if (file.size() > largest) {
    fail(ErrorCode::kBadInput,
         "json",
         "{}: has {} bytes; at most {} are read",
         file.name(),
         file.size(),
         largest);
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return parse_json(text, file.name());
}

JsonFields::JsonFields(const json& value, std::string name)
    : value_(&value), name_(std::move(name)) {
  if (!value.is_object()) {
    fail(ErrorCode::kBadInput, "json", "{}: is a JSON {}, not an object", name_, value.type_name());
  }
}

const json* JsonFields::find(std::string_view key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

namespace {

[[noreturn]] void refuse_type(const JsonFields& fields,
                              std::string_view key,
                              const json& value,
                              const char* wanted) {
  fail(ErrorCode::kBadInput,
       "json",
       "{}: {} is {}, not {}",
       fields.name(),
       in_quotes(key),
       value.is_primitive() && !value.is_string() ? value.dump() : value.type_name(),
       wanted);
}

template <class T>
T required(const JsonFields& fields, std::string_view key, std::optional<T> value) {
  if (!value) {
    fail(ErrorCode::kBadInput, "json", "{}: lacks {}", fields.name(), in_quotes(key));
  }
  return *std::move(value);
}

}  // namespace

std::optional<std::int64_t> JsonFields::integer(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{kLargest})) {
    refuse_type(*this, key, *value, "an integer of 63 bits");
  }
  return value->get<std::int64_t>();
}

std::optional<double> JsonFields::number(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_number()) {
    refuse_type(*this, key, *value, "a number");
  }
  return value == nullptr ? std::nullopt : std::optional(value->get<double>());
}

std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_boolean()) {
    refuse_type(*this, key, *value, "true or false");
  }
  return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

std::optional<std::string> JsonFields::string(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_string()) {
    refuse_type(*this, key, *value, "a string");
  }
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

std::int64_t JsonFields::required_integer(std::string_view key) const {
  return required(*this, key, integer(key));
}

double JsonFields::required_number(std::string_view key) const {
  return required(*this, key, number(key));
}

std::string JsonFields::required_string(std::string_view key) const {
  return required(*this, key, string(key));
}

}  // namespace longtune
