#include "tokenizer/json_view.h"

#include <limits>

#include "base/error.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "tokenizer";

}  // namespace

std::string JsonView::where() const {
  return fmt::format("{}: {}", file_, path_.empty() ? "the file" : path_);
}

bool JsonView::has(const char* key) const {
  const auto it = json_->find(key);
  return it != json_->end() && !it->is_null();
}

JsonView JsonView::at(const char* key) const {
  expect_object();
  const std::string path = path_.empty() ? key : fmt::format("{}.{}", path_, key);
  const auto it = json_->find(key);
  if (it == json_->end()) {
    fail(ErrorCode::kBadInput, kWhere, "{}: {} is missing", file_, path);
  }
  return {*it, file_, path};
}

JsonView JsonView::at(std::size_t index) const {
  return {json_->at(index), file_, fmt::format("{}[{}]", path_, index)};
}

std::string JsonView::string() const {
  if (!json_->is_string()) {
    expected("a string");
  }
  return json_->get<std::string>();
}

bool JsonView::boolean() const {
  if (!json_->is_boolean()) {
    expected("true or false");
  }
  return json_->get<bool>();
}

std::int32_t JsonView::index() const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
  // A number without a sign is unsigned to the parser.
  if (!json_->is_number_unsigned() || json_->get<std::uint64_t>() > kMost) {
    expected("a whole number from 0 to 2^31 - 1");
  }
  return json_->get<std::int32_t>();
}

std::size_t JsonView::array_size() const {
  if (!json_->is_array()) {
    expected("an array");
  }
  return json_->size();
}

bool JsonView::boolean_or(const char* key, bool otherwise) const {
  return has(key) ? at(key).boolean() : otherwise;
}

std::string JsonView::string_or(const char* key, const std::string& otherwise) const {
  return has(key) ? at(key).string() : otherwise;
}

void JsonView::expect_object() const {
  if (!json_->is_object()) {
    expected("an object");
  }
}

void JsonView::expected(const char* type) const {
  constexpr std::size_t kShown = 60;
  std::string found = json_->is_structured() ? json_->type_name() : json_->dump();
  if (found.size() > kShown) {
    found = json_->type_name();
  }
  fail(ErrorCode::kBadInput, kWhere, "{} must be {}, not {}", where(), type, found);
}

}  // namespace longtune
