#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace longtune {

/// What the run can keep of the forward pass: attention's outputs where they fit, then the outputs
/// of as many layers' products as fit and take at most `product_bytes`.
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

/// The plan of a run of some kind with the model held and computed like this.
using ModelPlan = std::function<Plan(const ModelOptions&)>;

/// How many keys and values in host memory a run fits with, where a disk takes the rest: "--kv-host
/// 3072MiB --spill-dir DIR", without the directory where the options name one or nothing is left
/// over. Nothing where none would fit, and where neither host nor machine sets a limit.
[[nodiscard]] std::optional<std::string> fitting_spill(const ModelOptions& model,
                                                       const ModelPlan& plan,
                                                       const Budgets& budgets);

/// Changes of a single thing with which a run that does not fit would: "--segment 1024",
/// "--base-weights nf4", "--kv-host 3072MiB --spill-dir DIR", "--context 6144", nearest first.
/// Empty where no single change is enough.
[[nodiscard]] std::vector<std::string> nearest_settings(const ModelSource& source,
                                                        const TrainOptions& options,
                                                        std::int64_t data_bytes,
                                                        const Budgets& budgets);

/// "it fits with --segment 1024 or --context 6144", or that nothing alone is enough.
[[nodiscard]] std::string remedy_of(const std::vector<std::string>& settings);

}  // namespace longtune
