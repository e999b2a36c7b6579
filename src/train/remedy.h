#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace longtune {

/// What the run can keep of the forward pass: attention's outputs where they fit, then the outputs
/// of as many layers' products as fit and take at most `product_bytes`. Where the device has no
/// budget, all must fit what memory the system has to give, so that nothing that would have run is
/// lost.
[[nodiscard]] Kept what_to_keep(const ModelSource& source,
                                const TrainOptions& options,
                                std::int64_t data_bytes,
                                const Budgets& budgets,
                                std::int64_t product_bytes);

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
