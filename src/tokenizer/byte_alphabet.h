#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longtune {

/// GPT-2's byte alphabet: each byte is written as one printable character, so that vocabularies
/// hold no spaces and no broken UTF-8. Printable Latin-1 bytes stand for themselves; the other 68,
/// in order, are U+0100, U+0101, ... (a space is U+0120, a line feed U+010A).
[[nodiscard]] std::string spell_byte(std::uint8_t byte);

/// The bytes that a spelling stands for; nothing where a character is outside the alphabet.
[[nodiscard]] std::optional<std::string> spelled_bytes(std::string_view spelling);

}  // namespace longtune
