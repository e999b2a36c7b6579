#include "io/cursor.h"

#include <algorithm>

#include "base/error.h"

namespace longtune {

void Cursor::check(std::uint64_t length, const char* what) const {
  if (length > static_cast<std::uint64_t>(remaining())) {
    fail(ErrorCode::kBadInput,
         "file",
         "{}: {} of {} bytes at byte {} goes past the end at byte {}",
         reader_.name(),
         what,
         length,
         offset_,
         limit_);
  }
}

std::string Cursor::read_string(std::uint64_t length, const char* what) {
  check(length, what);
  std::string result(length, '\0');
  read_bytes(result.data(), length, what);
  return result;
}

void Cursor::read_bytes(char* target, std::uint64_t length, const char* what) {
  check(length, what);
  auto left = static_cast<std::int64_t>(length);
  while (left > 0) {
    if (offset_ < buffer_begin_ || offset_ >= buffer_end_) {
      buffer_begin_ = offset_;
      buffer_end_ = std::min(limit_, offset_ + static_cast<std::int64_t>(buffer_.size()));
      const auto fresh = static_cast<std::size_t>(buffer_end_ - buffer_begin_);
      reader_.read_at(offset_, std::as_writable_bytes(std::span(buffer_.data(), fresh)));
    }
    const std::int64_t count = std::min(left, buffer_end_ - offset_);
    std::memcpy(
        target, buffer_.data() + (offset_ - buffer_begin_), static_cast<std::size_t>(count));
    target += count;
    offset_ += count;
    left -= count;
  }
}

}  // namespace longtune
