#include "tokenizer/utf8.h"

#include <utf8proc.h>

#include <cstdint>

namespace longtune {
namespace {

/// What a lead byte promises: the length, and the range of the second byte, which is what rules out
/// overlong forms, surrogates and values past U+10FFFF.
struct Lead {
  std::size_t size = 0;  // 0: no lead byte
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
};

Lead lead_of(std::uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    const std::uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
    const std::uint8_t high = byte == 0xED ? 0x9F : 0xBF;
    return {3, low, high};
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    const std::uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
    const std::uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
    return {4, low, high};
  }
  return {};
}

bool is_circled_letter(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

}  // namespace

Character read_utf8(std::string_view text, std::size_t at) {
  const auto first = static_cast<std::uint8_t>(text[at]);
  if (first < 0x80) {
    return {first, 1, true};
  }
  const Lead lead = lead_of(first);
  if (lead.size == 0) {
    return {};
  }
  auto value = static_cast<char32_t>(first & (0x7F >> lead.size));
  for (std::size_t i = 1; i < lead.size; ++i) {
    const auto byte = at + i < text.size() ? static_cast<std::uint8_t>(text[at + i]) : 0;
    const bool fits = i == 1 ? byte >= lead.low && byte <= lead.high : (byte & 0xC0) == 0x80;
    if (!fits) {
      return {0xFFFD, i, false};
    }
    value = value << 6 | (byte & 0x3F);
  }
  return {value, lead.size, true};
}

std::size_t previous_character(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && (static_cast<std::uint8_t>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  return start;
}

void append_utf8(std::string& text, char32_t value) {
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | ((value >> shift) & 0x3F)));
  };
  if (value < 0x80) {
    text.push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    text.push_back(static_cast<char>(0xC0 | value >> 6));
    tail(0);
  } else if (value < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | value >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | value >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string_view repair_utf8(std::string_view text, std::string& storage) {
  std::size_t good = 0;
  while (good < text.size()) {
    const Character c = read_utf8(text, good);
    if (!c.valid) {
      break;
    }
    good += c.size;
  }
  if (good == text.size()) {
    return text;
  }
  storage.assign(text, 0, good);
  for (std::size_t at = good; at < text.size();) {
    const Character c = read_utf8(text, at);
    append_utf8(storage, c.value);
    at += c.size;
  }
  return storage;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word_character(char32_t c) {
  constexpr char32_t kZeroWidthNonJoiner = 0x200C;
  constexpr char32_t kZeroWidthJoiner = 0x200D;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == kZeroWidthNonJoiner || c == kZeroWidthJoiner || is_circled_letter(c);
  }
}

}  // namespace longtune
