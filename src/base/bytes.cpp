#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace longtune {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 9> kUnits{{{"", 1},
                                      {"B", 1},
                                      {"KiB", 1024.0},
                                      {"MiB", 1048576.0},
                                      {"GiB", 1073741824.0},
                                      {"TiB", 1099511627776.0},
                                      {"KB", 1e3},
                                      {"MB", 1e6},
                                      {"GB", 1e9}}};

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || number < 0) {
    return std::nullopt;
  }
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') {
    unit.remove_prefix(1);
  }
  for (const Unit& known : kUnits) {
    if (unit == known.name) {
      const double bytes = std::floor(number * known.bytes);
      return bytes < 9.2e18 ? std::optional(static_cast<std::int64_t>(bytes)) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::string format_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= kGiB) {
    return fmt::format("{:.2f} GiB", value / static_cast<double>(kGiB));
  }
  if (bytes >= kMiB) {
    return fmt::format("{:.1f} MiB", value / static_cast<double>(kMiB));
  }
  if (bytes >= kKiB) {
    return fmt::format("{:.0f} KiB", value / static_cast<double>(kKiB));
  }
  return fmt::format("{} B", bytes);
}

std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &result)) {
    return std::nullopt;
  }
  return result;
}

}  // namespace longtune
