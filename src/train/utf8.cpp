#include "train/utf8.h"

namespace longtune {
namespace {

/// Bytes of the character that starts at `text`, or 0 where none does.
[[nodiscard]] std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return 0;
  }
  const std::size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < count) {
    return 0;
  }
  // The second byte's range is narrower after some lead bytes.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < count; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  return count;
}

}  // namespace

std::int64_t invalid_utf8_bytes(std::string_view text) {
  std::int64_t invalid = 0;
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    invalid += count == 0 ? 1 : 0;
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return invalid;
}

std::int64_t valid_utf8_bytes_among(std::string_view text, const std::array<bool, 256>& table) {
  std::int64_t found = 0;
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    for (const char byte : text.substr(0, count)) {
      found += table.at(static_cast<unsigned char>(byte)) ? 1 : 0;
    }
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return found;
}

}  // namespace longtune
