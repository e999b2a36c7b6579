#include "model/config.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace longtune {
namespace {

struct NamedSize {
  const char* name;
  std::int64_t value;
};

template <class... Args>
[[noreturn]] void bad(const std::string& file, fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::kBadInput,
       "model",
       "{}: {}",
       file,
       fmt::format(format, std::forward<Args>(args)...));
}

void check_sizes(const ModelConfig& config, const std::string& file) {
  const std::array<NamedSize, 7> sizes{{{"layers", config.L},
                                        {"width", config.C},
                                        {"feed-forward width", config.F},
                                        {"query heads", config.Hq},
                                        {"KV heads", config.Hkv},
                                        {"head dimension", config.D},
                                        {"vocabulary", config.V}}};
  constexpr std::int64_t kLargest = std::int64_t{1} << 20U;
  constexpr std::int64_t kMostLayers = 16384;
  for (const NamedSize& size : sizes) {
    if (size.value < 1 || size.value > kLargest) {
      bad(file, "{} is {}; it must be from 1 to {}", size.name, size.value, kLargest);
    }
  }
  if (config.L > kMostLayers) {
    bad(file, "layers is {}; at most {} are", config.L, kMostLayers);
  }
}

void check_rope(const RopeConfig& rope, std::int64_t D, const std::string& file) {
  const auto require = [&](bool good, const char* name, double value, const char* range) {
    if (!good || !std::isfinite(value)) {
      bad(file, "RoPE {} is {}; it must be {}", name, value, range);
    }
  };
  require(rope.theta > 1, "theta", rope.theta, "above 1");
  require(rope.factor > 0, "factor", rope.factor, "positive");
  if (rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn) {
    require(rope.original_context > 0, "original context", rope.original_context, "positive");
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    require(rope.low_freq_factor > 0, "low_freq_factor", rope.low_freq_factor, "positive");
    require(rope.high_freq_factor > rope.low_freq_factor,
            "high_freq_factor",
            rope.high_freq_factor,
            "above low_freq_factor");
  }
  if (rope.scaling == RopeScaling::kYarn) {
    require(rope.beta_slow > 0, "beta_slow", rope.beta_slow, "positive");
    require(rope.beta_fast >= rope.beta_slow, "beta_fast", rope.beta_fast, "beta_slow or above");
    require(rope.attention_factor >= 0, "attention_factor", rope.attention_factor, "positive");
  }
  if (!rope.divisors.empty() && static_cast<std::int64_t>(rope.divisors.size()) != D / 2) {
    bad(file, "RoPE has {} divisors for {} frequencies", rope.divisors.size(), D / 2);
  }
  for (const float divisor : rope.divisors) {
    require(divisor > 0, "divisor", divisor, "positive");
  }
}

}  // namespace

void check(const ModelConfig& config, const std::string& file) {
  check_sizes(config, file);
  if (config.Hq % config.Hkv != 0) {
    bad(file, "{} query heads are no multiple of {} KV heads", config.Hq, config.Hkv);
  }
  if (config.D % 2 != 0) {
    bad(file, "head dimension {} is odd", config.D);
  }
  if (!std::isfinite(config.norm_eps) || config.norm_eps <= 0) {
    bad(file, "the norm's epsilon is {}; it must be positive", config.norm_eps);
  }
  if (config.max_context < 0) {
    bad(file, "the longest context is {}", config.max_context);
  }
  check_rope(config.rope, config.D, file);
}

}  // namespace longtune
