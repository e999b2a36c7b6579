#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace longtune {

/// How many bytes of `text` belong to no UTF-8 character (Unicode 15, table 3-7: no overlong forms,
/// surrogates, or code points past U+10FFFF).
[[nodiscard]] std::int64_t invalid_utf8_bytes(std::string_view text);

/// How many bytes of `text` are of UTF-8 characters and among those of the table, by value.
[[nodiscard]] std::int64_t valid_utf8_bytes_among(std::string_view text,
                                                  const std::array<bool, 256>& table);

}  // namespace longtune
