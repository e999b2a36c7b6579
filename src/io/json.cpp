#include "io/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "io/reader.h"

namespace longtune {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 64;

// Sees every event of a parser that builds nothing: nlohmann::json itself keeps the last of two
// equal keys in silence and builds nested arrays as deep as the text goes. (Its parser with a
// callback would do, but looks through a container's elements after each one that is a container.)
class Watch final : public nlohmann::json_sax<json> {
 public:
  explicit Watch(const std::string& name) : name_(name) {}

  bool null() override { return true; }

  bool boolean(bool /*value*/) override { return true; }

  bool number_integer(number_integer_t /*value*/) override { return true; }

  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }

  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }

  bool string(string_t& /*value*/) override { return true; }

  bool binary(binary_t& /*value*/) override { return true; }

  bool start_object(std::size_t /*elements*/) override { return open(); }

  bool end_object() override { return close(); }

  bool start_array(std::size_t /*elements*/) override { return open(); }

  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) {
      fail(ErrorCode::kBadInput, "json", "{}: has key {} twice", name_, in_quotes(key));
    }
    return true;
  }

  bool parse_error(std::size_t byte,
                   const std::string& /*token*/,
                   const json::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error) == nullptr) {
      fail(ErrorCode::kBadInput,
           "json",
           "{}: holds a number that no machine number can hold",
           name_);
    }
    fail(ErrorCode::kBadInput, "json", "{}: is no valid JSON at byte {}", name_, byte);
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (keys_.size() > kDeepest) {
      fail(ErrorCode::kBadInput, "json", "{}: is nested deeper than {}", name_, kDeepest);
    }
    return true;
  }

  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& name_;
  std::vector<std::set<std::string>> keys_;  ///< of the open containers; none of an array
};

}  // namespace

json parse_json(std::string_view text, const std::string& name) {
  Watch watch(name);
  json::sax_parse(text, &watch);
  return json::parse(text);
}

json read_json(const std::filesystem::path& path, std::int64_t largest) {
  return parse_json(read_whole(path, largest), path.string());
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
