#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longtune {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024 * kMiB;

/// Bytes named by "512MiB", "1.5 GiB", "2GB" (10^9) or plain "4096" (bytes); nothing where the text
/// is no size, is negative, or does not fit 63 bits.
[[nodiscard]] std::optional<std::int64_t> parse_bytes(std::string_view text);

/// "1.50 GiB", "93.8 MiB", "12 KiB", "7 B": for people, never parsed back.
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

/// a * b and a + b of sizes read from files or options; nothing where the result leaves 63 bits or
/// an argument is negative.
[[nodiscard]] std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b);
[[nodiscard]] std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b);

/// The smallest multiple of `step` (> 0) that is at least `value` (>= 0).
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace longtune
