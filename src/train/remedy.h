#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace longtune {

/// Whether the run fits with attention's outputs kept (TrainOptions::keep_attention). Where the
/// device has no budget, it must fit what memory the system has to give, so that nothing that would
/// have run is lost.
[[nodiscard]] bool can_keep_attention(const ModelSource& source,
                                      const TrainOptions& options,
                                      std::int64_t data_bytes,
                                      const Budgets& budgets);

/// The longest context, a multiple of 64, with which the run fits the budgets; 0 where none of at
/// least 64 tokens does.
[[nodiscard]] std::int64_t longest_context(const ModelSource& source,
                                           const TrainOptions& options,
                                           std::int64_t data_bytes,
                                           const Budgets& budgets);

/// Changes of a single option with which a run that does not fit would: "--segment 1024",
/// "--base-weights nf4", "--context 6144", nearest first. Empty where no single change is enough.
[[nodiscard]] std::vector<std::string> nearest_settings(const ModelSource& source,
                                                        const TrainOptions& options,
                                                        std::int64_t data_bytes,
                                                        const Budgets& budgets);

}  // namespace longtune
