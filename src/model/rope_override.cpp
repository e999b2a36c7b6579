#include "model/rope_override.h"

#include <algorithm>

#include "base/error.h"

namespace longtune {
namespace {

// 0 where it is not known.
double original_context(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (!rope.divisors.empty()) {
    return 0;
  }
  const bool names_it = rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  return names_it ? rope.original_context : static_cast<double>(config.max_context);
}

}  // namespace

std::string text_of(const RopeChoice& choice) {
  if (!choice) {
    return "file";
  }
  if (choice->scaling == RopeScaling::kNone) {
    return "none";
  }
  const bool linear = choice->scaling == RopeScaling::kLinear;
  return fmt::format("{}:{}", linear ? "linear" : "yarn", choice->factor);
}

ModelConfig with_rope(ModelConfig config, const RopeChoice& choice) {
  if (!choice) {
    return config;
  }
  const double original = original_context(config);
  if (choice->scaling == RopeScaling::kYarn && !(original > 0)) {
    fail(ErrorCode::kUnsupported,
         "rope",
         "--rope-scaling {} needs the context that the model was made for, which its file does not "
         "say; linear:{} does not",
         text_of(choice),
         choice->factor);
  }
  config.rope = {.theta = config.rope.theta,
                 .scaling = choice->scaling,
                 .factor = choice->factor,
                 .original_context = original};
  constexpr double kLargest = 1ULL << 53U;  // exact in f64, whatever a file says
  config.max_context = static_cast<std::int64_t>(std::min(choice->factor * original, kLargest));
  return config;
}

}  // namespace longtune
