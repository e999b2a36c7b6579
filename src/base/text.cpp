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

}  // namespace longtune
