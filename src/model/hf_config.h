#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "model/config.h"

namespace longtune {

/// The configuration in a Hugging Face `config.json`, in the spelling of transformers 4
/// (rope_theta, rope_scaling) or 5 (rope_parameters); absent fields mean what they mean there.
/// `name` is what messages call the file. Throws Error: kBadInput for malformed or impossible
/// values, kUnsupported, by name, for what longtune does not understand.
[[nodiscard]] ModelConfig parse_hf_config(const nlohmann::json& value, const std::string& name);

}  // namespace longtune
