#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "io/reader.h"

namespace longtune {

/// Reads little-endian values one after the other through a small buffer, never past `limit`.
class Cursor {
 public:
  static_assert(std::endian::native == std::endian::little, "files are read as they are");

  /// `limit`: bytes from the start of the file that may be read; at most reader.size().
  Cursor(const Reader& reader, std::int64_t limit) : reader_(reader), limit_(limit) {}

  [[nodiscard]] std::int64_t offset() const { return offset_; }

  [[nodiscard]] std::int64_t remaining() const { return limit_ - offset_; }

  /// Throws Error kBadInput where fewer than sizeof(T) bytes remain; `what` names the value.
  template <class T>
  [[nodiscard]] T read(const char* what) {
    std::array<char, sizeof(T)> bytes{};
    read_bytes(bytes.data(), sizeof(T), what);
    return std::bit_cast<T>(bytes);
  }

  /// Throws Error kBadInput, before anything is allocated, where fewer than `length` bytes remain.
  [[nodiscard]] std::string read_string(std::uint64_t length, const char* what);

  void read_bytes(char* target, std::uint64_t length, const char* what);

 private:
  void check(std::uint64_t length, const char* what) const;

  const Reader& reader_;
  std::int64_t limit_;
  std::int64_t offset_ = 0;
  std::array<char, 65536> buffer_{};
  std::int64_t buffer_begin_ = 0;  ///< offset in the file of the buffer's first byte
  std::int64_t buffer_end_ = 0;
};

}  // namespace longtune
