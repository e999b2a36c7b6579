#pragma once

#include <optional>
#include <string>

#include "model/config.h"

namespace longtune {

/// RoPE scaling asked for in place of what the model's file says, to read or train beyond the
/// context that the model was made for. It means what `rope_parameters` of that type and factor
/// mean in a Hugging Face configuration:
///
///     none    the plain frequencies
///     linear  all frequencies divided by the factor
///     yarn    beta_fast 32, beta_slow 1, attention factor 0.1 ln(factor) + 1, and the model's own
///             context as the original one
struct RopeOverride {
  RopeScaling scaling = RopeScaling::kNone;  ///< none, linear or yarn
  double factor = 1;                         ///< linear, yarn; from 1 to kLargestRopeFactor

  bool operator==(const RopeOverride&) const = default;
};

constexpr double kLargestRopeFactor = 65536;

/// What the file says, where nothing is asked for.
using RopeChoice = std::optional<RopeOverride>;

/// "file", "none", "linear:2", "yarn:1.5": as --rope-scaling takes it.
[[nodiscard]] std::string text_of(const RopeChoice& choice);

/// The model as it is with the scaling that was chosen. Its max_context is the factor times the
/// original context: the one that the scaling of the file names, else the file's longest context;
/// 0 where the file says neither, or only how its frequencies are divided. Throws Error
/// kUnsupported where yarn would need an original context that is not known.
[[nodiscard]] ModelConfig with_rope(ModelConfig config, const RopeChoice& choice);

}  // namespace longtune
