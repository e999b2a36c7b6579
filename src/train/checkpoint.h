#pragma once

#include <filesystem>
#include <string>

#include "model/adapter.h"
#include "train/trainer.h"

namespace longtune {

/// What a checkpoint is made of besides its files' names.
struct CheckpointState {
  Adapter* adapter = nullptr;
  const TrainOptions* options = nullptr;
  std::int64_t step = 0;    ///< optimiser steps done
  std::int64_t cursor = 0;  ///< samples consumed
  std::uint64_t data_fingerprint = 0;
  std::uint64_t model_fingerprint = 0;
};

struct CheckpointPosition {
  std::int64_t step = 0;
  std::int64_t cursor = 0;
};

/// Writes the adapter in PEFT's format, `optimizer.safetensors` (first_moments and second_moments,
/// flat f32) and `state.json` into `directory`, which exists.
void save_checkpoint(const CheckpointState& state,
                     const std::filesystem::path& directory,
                     const std::string& base_model);

/// Fills adapter and moments. The number of steps may be another than the checkpoint was made with,
/// as long as no more steps are done, and then the warm-up too: rates of the steps to come are
/// those of the new schedule. Throws Error: kInvalidArgument, naming the first difference, where it
/// was made with other options, data or base model, as the result would not be that of one run;
/// kBadInput where a file is malformed.
[[nodiscard]] CheckpointPosition load_checkpoint(const CheckpointState& state,
                                                 const std::filesystem::path& directory);

}  // namespace longtune
