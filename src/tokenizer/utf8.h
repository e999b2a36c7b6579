#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace longtune {

/// One character of a UTF-8 text, or one maximal invalid part of it (Unicode 15, section 3.9,
/// "U+FFFD Substitution of Maximal Subparts"; what Python's errors='replace' does).
struct Character {
  char32_t value = 0xFFFD;
  std::size_t size = 1;  ///< in bytes, at least 1
  bool valid = false;
};

/// The character that begins at byte `at` (< text.size()).
[[nodiscard]] Character read_utf8(std::string_view text, std::size_t at);

/// The start of the character that ends before byte `end` (0 < end) of valid UTF-8.
[[nodiscard]] std::size_t previous_character(std::string_view text, std::size_t end);

void append_utf8(std::string& text, char32_t value);

/// `text` where it is valid UTF-8; otherwise a repaired copy, kept in `storage`, in which each
/// maximal invalid part is U+FFFD.
[[nodiscard]] std::string_view repair_utf8(std::string_view text, std::string& storage);

/// Unicode's White_Space property, which is what \s means to the reference's regexes.
[[nodiscard]] bool is_white_space(char32_t c);

/// \w as Unicode's regex standard defines it (UTS #18): alphabetic, marks, decimal digits,
/// connector punctuation, joiners.
[[nodiscard]] bool is_word_character(char32_t c);

}  // namespace longtune
