#pragma once

#include "apps/json_file.h"
#include "model/config.h"

namespace longtune::cli {

/// A model's shape, as `inspect` shows it. RoPE's scaling is "divisors" where the file gives each
/// frequency its own (rope_freqs.weight in GGUF).
[[nodiscard]] Json config_json(const ModelConfig& config);

}  // namespace longtune::cli
