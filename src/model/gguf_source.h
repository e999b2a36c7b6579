#pragma once

#include <filesystem>
#include <memory>

#include "io/gguf.h"
#include "model/source.h"

namespace longtune {

/// The configuration in a GGUF file's metadata and tensor entries; `reader` is the file, of which
/// rope_freqs.weight is read. Throws Error as open_model.
[[nodiscard]] ModelConfig parse_gguf_config(const Gguf& gguf, const Reader& reader);

/// As open_model.
[[nodiscard]] std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path);

}  // namespace longtune
