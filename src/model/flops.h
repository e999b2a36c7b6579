#pragma once

#include "attention/options.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/options.h"

namespace longtune {

/// Operations (two for a multiplication and its addition) that a forward pass over `tokens` tokens
/// from `first_position` takes in its products and attention, with the head for `scored` of them;
/// by formula. Of routed attention what is attended counts, as if every query found as much as it
/// may; of lists that are seen whole, halfway between one query's groups and the cap.
[[nodiscard]] double forward_flops(const ModelConfig& config,
                                   const LoraConfig* lora,
                                   const AttentionOptions& attention,
                                   std::int64_t tokens,
                                   std::int64_t first_position,
                                   std::int64_t scored);

struct TrainingPass {
  std::int64_t tokens = 0;
  std::int64_t first_position = 0;
  std::int64_t scored = 0;
  Kept kept;
};

/// The same for a training pass: forward, recomputation of every layer but its last product and
/// what is kept; gradients of inputs (but for the first layer's) and of the adapter.
[[nodiscard]] double training_flops(const ModelConfig& config,
                                    const LoraConfig& lora,
                                    const AttentionOptions& attention,
                                    const TrainingPass& pass);

/// Tokens of closed chunks that queries at positions [first_position, first_position + tokens)
/// attend to, each as many as it may, as a share of all such tokens before them; 1 where there are
/// none.
[[nodiscard]] double history_attended(const AttentionOptions& attention,
                                      std::int64_t tokens,
                                      std::int64_t first_position);

}  // namespace longtune
