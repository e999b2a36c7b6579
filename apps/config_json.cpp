#include "apps/config_json.h"

#include <fmt/format.h>

namespace longtune::cli {
namespace {

[[nodiscard]] const char* name_of_scaling(const RopeConfig& rope) {
  if (!rope.divisors.empty()) {
    return "divisors";
  }
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
  }
  return "?";
}

/// The shortest decimal number that names `value`: 1e-05, not what it is in f64.
[[nodiscard]] double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}

}  // namespace

Json config_json(const ModelConfig& config) {
  return {{"architecture", config.architecture},
          {"layers", config.L},
          {"width", config.C},
          {"feed_forward", config.F},
          {"query_heads", config.Hq},
          {"kv_heads", config.Hkv},
          {"head_dimension", config.D},
          {"vocabulary", config.V},
          {"norm_eps", shortest(config.norm_eps)},
          {"max_context", config.max_context},
          {"tied_embeddings", config.tied_embeddings},
          {"qkv_bias", config.qkv_bias},
          {"o_bias", config.o_bias},
          {"mlp_bias", config.mlp_bias},
          {"qk_norm", config.qk_norm},
          {"rope",
           {{"theta", config.rope.theta},
            {"scaling", name_of_scaling(config.rope)},
            {"factor", config.rope.factor},
            {"original_context", config.rope.original_context}}}};
}

}  // namespace longtune::cli
