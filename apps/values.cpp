#include "apps/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/bytes.h"
#include "base/text.h"

namespace longtune::cli {
namespace {

template <class T>
[[nodiscard]] bool read_number(std::string_view text, T& value) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size();
}

/// Insertions, deletions and replacements that turn one word into the other (Levenshtein 1966).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::int64_t Warmup::steps_of(std::int64_t all) const {
  return percent ? static_cast<std::int64_t>(std::ceil(*percent / 100 * static_cast<double>(all)))
                 : steps;
}

void parse_value(std::string_view text, bool& value) {
  if (text != "true" && text != "false") {
    throw BadValue(fmt::format("{} is neither true nor false", in_quotes(text)));
  }
  value = text == "true";
}

void parse_value(std::string_view text, std::int64_t& value) {
  if (!read_number(text, value)) {
    throw BadValue(fmt::format("{} is no whole number", in_quotes(text)));
  }
}

void parse_value(std::string_view text, std::uint64_t& value) {
  if (!read_number(text, value)) {
    throw BadValue(fmt::format("{} is no whole number of at least 0", in_quotes(text)));
  }
}

void parse_value(std::string_view text, double& value) {
  if (!read_number(text, value) || !std::isfinite(value)) {
    throw BadValue(fmt::format("{} is no number", in_quotes(text)));
  }
}

void parse_value(std::string_view text, std::string& value) {
  value = text;
}

void parse_value(std::string_view text, std::filesystem::path& value) {
  if (text.empty()) {
    throw BadValue("the path is empty");
  }
  value = text;
}

void parse_value(std::string_view text, Size& value) {
  const std::optional<std::int64_t> bytes = parse_bytes(text);
  if (!bytes) {
    throw BadValue(fmt::format(
        "{} is no size; sizes are like 16GiB, 512MiB, 2GB, or a number of bytes", in_quotes(text)));
  }
  value.bytes = *bytes;
}

void parse_value(std::string_view text, Warmup& value) {
  const bool is_percent = text.ends_with('%');
  std::int64_t steps = 0;
  if (is_percent) {
    double share = 0;
    if (!read_number(text.substr(0, text.size() - 1), share) || !(share >= 0 && share <= 100)) {
      throw BadValue(fmt::format("{} is no share from 0% to 100%", in_quotes(text)));
    }
    value = {.percent = share};
    return;
  }
  if (!read_number(text, steps) || steps < 0) {
    throw BadValue(
        fmt::format("{} is neither a number of steps nor a share like 10%", in_quotes(text)));
  }
  value = {.steps = steps};
}

void parse_value(std::string_view text, RopeChoice& value) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  RopeOverride wanted;
  if (colon == std::string_view::npos) {
    if (name == "file" || name == "none") {
      value = name == "file" ? RopeChoice() : wanted;
      return;
    }
  } else if (name == "linear" || name == "yarn") {
    wanted.scaling = name == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
    if (read_number(text.substr(colon + 1), wanted.factor) && wanted.factor >= 1 &&
        wanted.factor <= kLargestRopeFactor) {
      value = wanted;
      return;
    }
  }
  throw BadValue(
      fmt::format("{} is none of file, none, linear:F and yarn:F with a factor F from 1 to {}",
                  in_quotes(text),
                  kLargestRopeFactor));
}

void parse_value(std::string_view text, std::vector<std::int64_t>& value) {
  value.clear();
  for (const std::string& part : split_commas(text)) {
    parse_value(part, value.emplace_back());
  }
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

std::string text_of(std::int64_t value) {
  return fmt::format("{}", value);
}

std::string text_of(std::uint64_t value) {
  return fmt::format("{}", value);
}

std::string text_of(double value) {
  return fmt::format("{}", value);
}

std::string text_of(const std::string& value) {
  return value;
}

std::string text_of(const std::filesystem::path& value) {
  return value.string();
}

std::string text_of(const Size& value) {
  constexpr std::pair<std::int64_t, const char*> kUnits[] = {
      {kGiB, "GiB"}, {kMiB, "MiB"}, {kKiB, "KiB"}};
  for (const auto& [bytes, name] : kUnits) {
    if (value.bytes > 0 && value.bytes % bytes == 0) {
      return fmt::format("{}{}", value.bytes / bytes, name);
    }
  }
  return fmt::format("{}", value.bytes);
}

std::string text_of(const Warmup& value) {
  return value.percent ? fmt::format("{}%", *value.percent) : text_of(value.steps);
}

std::string text_of(const std::vector<std::int64_t>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    parts.emplace_back(part);
    if (comma == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known) {
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const bool continues = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t distance = continues ? 1 : edit_distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace longtune::cli
