#include "base/text.h"

#include <fmt/format.h>

namespace longtune {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string result = "'";
  for (const char character : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte >= 0x7F) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += character;
    }
  }
  result += text.size() > kLongest ? "...'" : "'";
  return result;
}

std::string printable(std::string_view text) {
  std::string result;
  unsigned char before = 0;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (before == 0xC2 && byte >= 0x80 && byte < 0xA0) {
      result.pop_back();
      result += fmt::format("\\xC2\\x{:02X}", byte);
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02X}", byte);
    } else {
      result += character;
    }
    before = byte;
  }
  return result;
}

}  // namespace longtune
