#pragma once

#include <filesystem>
#include <memory>

#include "model/source.h"

namespace longtune {

/// A directory with config.json and either model.safetensors or, with its shards,
/// model.safetensors.index.json. As open_model.
[[nodiscard]] std::unique_ptr<ModelSource> open_hf_model(const std::filesystem::path& directory);

}  // namespace longtune
