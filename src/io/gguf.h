#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/reader.h"

namespace longtune {

/// Types of GGUF metadata, by their numbers in the file.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u8", "string", "array", ...
[[nodiscard]] const char* name_of(GgufType type);

/// Bytes of one number; 0 for strings and arrays.
[[nodiscard]] std::int64_t size_of(GgufType type);

/// One metadata value. Numbers stay as their file's bytes and strings lie one after the other, so
/// that a vocabulary of 150,000 tokens is two allocations.
class GgufValue {
 public:
  /// The value's type; kArray for arrays, whose elements are of `element_type`.
  [[nodiscard]] GgufType type() const { return is_array_ ? GgufType::kArray : element_type_; }

  [[nodiscard]] GgufType element_type() const { return element_type_; }

  [[nodiscard]] bool is_array() const { return is_array_; }

  /// Elements of an array; 1 for a single value.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Element `index` (0 <= index < size(); 0 for a single value), or nothing where it is of another
  /// kind or (u64) does not fit. `number` takes whole numbers as well.
  [[nodiscard]] std::optional<std::int64_t> integer(std::int64_t index = 0) const;
  [[nodiscard]] std::optional<double> number(std::int64_t index = 0) const;
  [[nodiscard]] std::optional<bool> boolean(std::int64_t index = 0) const;

  /// Bytes as the file has them, not checked to be UTF-8; they live as long as the value.
  [[nodiscard]] std::optional<std::string_view> string(std::int64_t index = 0) const;

 private:
  friend class GgufParser;

  GgufType element_type_ = GgufType::kU8;
  bool is_array_ = false;
  std::int64_t size_ = 0;
  std::string bytes_;                ///< numbers as the file holds them, or all strings joined
  std::vector<std::uint32_t> ends_;  ///< strings: where each one ends in bytes_
};

/// A tensor's entry in a GGUF header.
struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;          ///< ggml's number, for instance 8 for Q8_0
  std::vector<std::int64_t> dims;  ///< 1 to 4 sizes, the innermost (a row's values) first
  std::int64_t offset = 0;         ///< of its first byte, from the start of the file
  std::int64_t bytes = 0;          ///< 0 where the type is none that we know
};

/// "Q8_0", ...; "type 77" for a number without a known name.
[[nodiscard]] std::string gguf_tensor_type_name(std::uint32_t type);

/// The header of a GGUF file of version 2 or 3 (one layout), little-endian: metadata and tensor
/// entries. Every count, size and offset is checked against the file before it is used: after
/// `parse`, each tensor of a known type lies inside the file and overlaps no other.
class Gguf {
 public:
  /// Throws Error: kBadInput for a malformed header, naming file, thing and value; kUnsupported for
  /// another version, big-endian files and arrays of arrays.
  [[nodiscard]] static Gguf parse(const Reader& reader);

  [[nodiscard]] const std::string& file() const { return file_; }

  /// The value under `key`; null where there is none.
  [[nodiscard]] const GgufValue* find(std::string_view key) const;

  /// A single value, or nothing where the key is absent. Throws Error kBadInput where the key holds
  /// another type.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> string(std::string_view key) const;

  /// An array of strings, or of integers (any width); null where the key is absent. Throws Error
  /// kBadInput where the key holds another type.
  [[nodiscard]] const GgufValue* strings(std::string_view key) const;
  [[nodiscard]] const GgufValue* integers(std::string_view key) const;

  /// All metadata, by key.
  [[nodiscard]] const std::map<std::string, GgufValue, std::less<>>& metadata() const {
    return metadata_;
  }

  /// In the order of the file.
  [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }

 private:
  friend class GgufParser;

  std::string file_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace longtune
