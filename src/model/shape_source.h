#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/source.h"

namespace longtune {

/// Names of the published shapes: "qwen3-0.6b", "qwen3-4b", "qwen3-8b", "llama3.1-8b".
[[nodiscard]] std::vector<std::string> shape_names();

/// A model of a published shape without its weights, for measuring memory and speed: matrices are
/// NF4 and an embedding that is not the head bf16, with random values of a reasonable size.
/// `layers`: 0 for as many as published. Throws Error kInvalidArgument, with the known names, for
/// another name, and for more layers than published.
[[nodiscard]] std::unique_ptr<ModelSource> open_shape(std::string_view name, std::int64_t layers);

}  // namespace longtune
