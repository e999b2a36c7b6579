#include "apps/rope_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/toml_values.h"
#include "apps/values.h"
#include "base/error.h"
#include "base/text.h"
#include "io/json.h"

namespace longtune::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "rope-scaling";

[[nodiscard]] std::optional<std::string> recorded_text(const fs::path& adapter) {
  std::error_code ignored;
  if (fs::exists(adapter / "state.json", ignored)) {
    const nlohmann::json state = read_json(adapter / "state.json");
    const auto options = state.find("options");
    if (options != state.end() && options->contains(kName) && options->at(kName).is_string()) {
      return options->at(kName).get<std::string>();
    }
    return std::nullopt;
  }
  if (fs::exists(adapter / "run.toml", ignored)) {
    const std::vector<TomlValue> values = read_toml(adapter / "run.toml");
    const auto found = std::ranges::find(values, kName, &TomlValue::name);
    if (found != values.end() && found->texts.size() == 1) {
      return found->texts.front();
    }
  }
  return std::nullopt;
}

[[nodiscard]] bool same_frequencies(const ModelConfig& a, const ModelConfig& b) {
  const RopeFrequencies of_a = rope_frequencies(a.rope, a.D);
  const RopeFrequencies of_b = rope_frequencies(b.rope, b.D);
  return of_a.frequencies == of_b.frequencies && of_a.scale == of_b.scale;
}

}  // namespace

std::optional<RopeChoice> recorded_rope(const fs::path& adapter) {
  // Files of those names may be anybody's, and an adapter does not need them.
  try {
    const std::optional<std::string> text = recorded_text(adapter);
    if (!text) {
      return std::nullopt;
    }
    RopeChoice choice;
    parse_value(*text, choice);
    return choice;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const BadValue&) {
    return std::nullopt;
  }
}

std::string rope_note(const std::optional<fs::path>& adapter,
                      const ModelConfig& config,
                      const RopeChoice& now) {
  const std::optional<RopeChoice> then = adapter ? recorded_rope(*adapter) : std::nullopt;
  if (!then || *then == now) {
    return "";
  }
  try {
    if (same_frequencies(with_rope(config, *then), with_rope(config, now))) {
      return "";
    }
  } catch (const Error&) {
    // One of them does not suit this model: they differ.
  }
  return fmt::format("note: {} was trained with --rope-scaling {}, and is used with {}\n",
                     printable(adapter->string()),
                     text_of(*then),
                     text_of(now));
}

}  // namespace longtune::cli
