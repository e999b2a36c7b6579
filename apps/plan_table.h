#pragma once

#include <string>

#include "apps/command.h"
#include "device/plan.h"
#include "train/trainer.h"

namespace longtune::cli {

/// A row per purpose, a column per tier, sums, budgets, and a line with what the machine has where
/// that is the limit.
[[nodiscard]] std::string plan_table(const Plan& plan, const Budgets& budgets);

/// One line: what each tier needs, against its budget.
[[nodiscard]] std::string plan_line(const Plan& plan, const Budgets& budgets);

/// {"fits", "device": {"need", "budget"}, "host", "disk", "machine": {"memory", "disk"},
/// "process_bytes", "purposes": [{"name", "tier", "bytes"}]}; a budget is null where none is named,
/// what the machine has where it is not the limit or not known.
[[nodiscard]] Json plan_json(const Plan& plan, const Budgets& budgets);

/// A line where the context is longer than the model was made for, or than the chosen scaling
/// stretches that to, with the scaling that would do; else nothing. `config`: as the file has it.
[[nodiscard]] std::string context_note(const ModelConfig& config,
                                       const RopeChoice& rope,
                                       std::int64_t context);

/// Operations of one optimiser step over samples as long as the context, by formula.
[[nodiscard]] double step_flops(const ModelConfig& config, const TrainOptions& options);

}  // namespace longtune::cli
