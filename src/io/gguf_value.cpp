#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "io/gguf.h"

namespace longtune {
namespace {

bool is_integer(GgufType type) {
  return size_of(type) > 0 && type != GgufType::kF32 && type != GgufType::kF64 &&
         type != GgufType::kBool;
}

template <class T>
T number_at(const std::string& bytes, std::int64_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

std::string describe(const GgufValue& value) {
  return value.is_array() ? fmt::format("an array of {}", name_of(value.element_type()))
                          : fmt::format("of type {}", name_of(value.type()));
}

}  // namespace

std::int64_t size_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

const char* name_of(GgufType type) {
  constexpr std::array<const char*, 13> kNames{"u8",
                                               "i8",
                                               "u16",
                                               "i16",
                                               "u32",
                                               "i32",
                                               "f32",
                                               "bool",
                                               "string",
                                               "array",
                                               "u64",
                                               "i64",
                                               "f64"};
  const auto index = static_cast<std::size_t>(type);
  return index < kNames.size() ? kNames[index] : "?";
}

std::optional<std::int64_t> GgufValue::integer(std::int64_t index) const {
  switch (element_type_) {
    case GgufType::kU8:
      return number_at<std::uint8_t>(bytes_, index);
    case GgufType::kI8:
      return number_at<std::int8_t>(bytes_, index);
    case GgufType::kU16:
      return number_at<std::uint16_t>(bytes_, index);
    case GgufType::kI16:
      return number_at<std::int16_t>(bytes_, index);
    case GgufType::kU32:
      return number_at<std::uint32_t>(bytes_, index);
    case GgufType::kI32:
      return number_at<std::int32_t>(bytes_, index);
    case GgufType::kU64: {
      const auto value = number_at<std::uint64_t>(bytes_, index);
      constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
      return value <= static_cast<std::uint64_t>(kLargest)
                 ? std::optional(static_cast<std::int64_t>(value))
                 : std::nullopt;
    }
    case GgufType::kI64:
      return number_at<std::int64_t>(bytes_, index);
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number(std::int64_t index) const {
  if (element_type_ == GgufType::kF32) {
    return number_at<float>(bytes_, index);
  }
  if (element_type_ == GgufType::kF64) {
    return number_at<double>(bytes_, index);
  }
  const std::optional<std::int64_t> whole = integer(index);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean(std::int64_t index) const {
  return element_type_ == GgufType::kBool
             ? std::optional(number_at<std::uint8_t>(bytes_, index) != 0)
             : std::nullopt;
}

std::optional<std::string_view> GgufValue::string(std::int64_t index) const {
  if (element_type_ != GgufType::kString) {
    return std::nullopt;
  }
  const std::size_t begin = index == 0 ? 0 : ends_[static_cast<std::size_t>(index - 1)];
  return std::string_view(bytes_).substr(begin, ends_[static_cast<std::size_t>(index)] - begin);
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void refuse_type(const Gguf& gguf,
                              std::string_view key,
                              const GgufValue& value,
                              const char* wanted) {
  fail(ErrorCode::kBadInput,
       "gguf",
       "{}: key {} is {}, not {}",
       gguf.file(),
       in_quotes(key),
       describe(value),
       wanted);
}

// The single value of a kind under `key`, by the accessor of that kind.
template <class T>
std::optional<T> single(const Gguf& gguf,
                        std::string_view key,
                        const char* wanted,
                        std::optional<T> (GgufValue::*get)(std::int64_t) const) {
  const GgufValue* value = gguf.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const std::optional<T> result = value->is_array() ? std::nullopt : (value->*get)(0);
  if (!result) {
    refuse_type(gguf, key, *value, wanted);
  }
  return result;
}

}  // namespace

std::optional<std::int64_t> Gguf::integer(std::string_view key) const {
  return single(*this, key, "an integer of 63 bits", &GgufValue::integer);
}

std::optional<double> Gguf::number(std::string_view key) const {
  return single(*this, key, "a number", &GgufValue::number);
}

std::optional<bool> Gguf::boolean(std::string_view key) const {
  return single(*this, key, "a bool", &GgufValue::boolean);
}

std::optional<std::string_view> Gguf::string(std::string_view key) const {
  return single(*this, key, "a string", &GgufValue::string);
}

const GgufValue* Gguf::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && (!value->is_array() || value->element_type() != GgufType::kString)) {
    refuse_type(*this, key, *value, "an array of strings");
  }
  return value;
}

const GgufValue* Gguf::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr && (!value->is_array() || !is_integer(value->element_type()))) {
    refuse_type(*this, key, *value, "an array of integers");
  }
  return value;
}

}  // namespace longtune
