#pragma once

#include "model/adapter.h"
#include "model/config.h"

namespace longtune {

/// Operations (two for a multiplication and its addition) that a forward pass over `tokens` tokens
/// from `first_position` takes in its products and attention, head included; by formula.
[[nodiscard]] double forward_flops(const ModelConfig& config,
                                   const LoraConfig* lora,
                                   std::int64_t tokens,
                                   std::int64_t first_position);

/// The same for a training pass: forward, recomputation of every layer but its last product,
/// gradients of inputs and of the adapter.
[[nodiscard]] double training_flops(const ModelConfig& config,
                                    const LoraConfig& lora,
                                    std::int64_t tokens,
                                    std::int64_t first_position);

}  // namespace longtune
