#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace longtune {
namespace {

constexpr std::size_t kBytes = 256;
constexpr char32_t kFirstStandIn = 0x100;

bool stands_for_itself(std::size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

/// The character of each byte, and the byte of each character (-1: none), as all lie below U+0144.
struct Alphabet {
  std::array<char32_t, kBytes> character{};
  std::array<std::int16_t, 0x144> byte{};

  Alphabet() {
    byte.fill(-1);
    char32_t next = kFirstStandIn;
    for (std::size_t b = 0; b < kBytes; ++b) {
      character[b] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string spell_byte(std::uint8_t byte) {
  std::string spelling;
  append_utf8(spelling, alphabet().character[byte]);
  return spelling;
}

std::optional<std::string> spelled_bytes(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const Character c = read_utf8(spelling, at);
    if (!c.valid || c.value >= alphabet().byte.size() || alphabet().byte[c.value] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(alphabet().byte[c.value]));
    at += c.size;
  }
  return bytes;
}

}  // namespace longtune
