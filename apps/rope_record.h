#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "model/rope_override.h"

namespace longtune::cli {

/// The RoPE scaling that an adapter was trained with, by what a training run leaves beside it
/// (state.json of a checkpoint, else run.toml); nothing where neither says, or can be read.
[[nodiscard]] std::optional<RopeChoice> recorded_rope(const std::filesystem::path& adapter);

/// A line for an adapter that was trained with other rotary frequencies than it is used with now;
/// else nothing. `config`: as the model's file has it.
[[nodiscard]] std::string rope_note(const std::optional<std::filesystem::path>& adapter,
                                    const ModelConfig& config,
                                    const RopeChoice& now);

}  // namespace longtune::cli
