#include <fmt/format.h>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "apps/plan_table.h"
#include "apps/progress.h"
#include "base/bytes.h"
#include "device/peak.h"
#include "device/threads.h"
#include "train/remedy.h"

namespace longtune::cli {
namespace {

struct PlanArgs {
  ShapeArgs shape;
  DataArgs data;
  CommonArgs common;
  std::int64_t accumulate = 1;
};

/// Host memory of the data and the held-out data, as far as they are named.
[[nodiscard]] std::int64_t bytes_of_data(const PlanArgs& args) {
  std::int64_t bytes = 0;
  for (const auto& paths : {args.data.data, args.data.eval_data}) {
    if (!paths.empty()) {
      const Tokenizer tokenizer = Tokenizer::load(args.shape.model.model);
      bytes +=
          load_data(paths, args.data, args.shape.context, text_encoder(tokenizer)).host_bytes();
    }
  }
  return bytes;
}

void print_time(const ModelConfig& config, const TrainOptions& options) {
  const double peak = measure_peak_flops();
  print_output("a step of {} x {} tokens: at least {} at this machine's {:.0f} GFLOP/s\n",
               options.accumulate,
               options.context,
               duration_text(step_flops(config, options) / peak),
               peak / 1e9);
}

}  // namespace

Outcome run_plan(const std::vector<std::string>& arguments,
                 std::optional<std::filesystem::path>& json) {
  PlanArgs args;
  OptionSet options("plan --model PATH|--shape NAME [options]",
                    "Says what a training run would need, without loading weights");
  add_shape_options(options, args.shape);
  add_shape_model_options(options, args.shape.model);
  options.group("Step");
  options.add({"accumulate", "N", "samples an optimiser step"}, args.accumulate);
  add_data_options(options, args.data);
  add_common_options(options, args.common, json);
  options.ignore_in_file(train_option_names());
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  prepare(args.common, json);
  const Budgets budgets = budgets_of(args.shape.memory, args.shape.model);

  const std::unique_ptr<ModelSource> source = open_source(options, args.shape.model);
  TrainOptions train = shape_options(options, args.shape);
  train.accumulate = args.accumulate;
  train.steps = 1;
  const std::int64_t data_bytes = bytes_of_data(args);
  train.kept = what_to_keep(*source, train, data_bytes, budgets, args.shape.kept_bytes());
  const Plan plan = Trainer::plan(*source, train, data_bytes);
  const bool has_limit = budgets.has_any();

  Outcome outcome{.result = plan_json(plan, budgets)};
  const std::int64_t longest = has_limit ? longest_context(*source, train, data_bytes, budgets) : 0;
  outcome.result["longest_context"] = has_limit ? Json(longest) : Json(nullptr);
  outcome.result["nearest"] = Json::array();
  print_output("{}the process itself takes up to {} more\n",
               plan_table(plan, budgets),
               format_bytes(process_bytes(threads_in_use())));
  print_output("{}", context_note(source->config(), train.model.rope, train.context));
  print_time(source->config(), train);
  if (has_limit) {
    print_output("{}; the longest context that does: {}\n",
                 fits(plan, budgets) ? "it fits" : "it does not fit",
                 longest > 0 ? fmt::format("{} tokens", longest) : "none");
  }
  if (!fits(plan, budgets)) {
    outcome.status = ExitStatus::kOutOfBudget;
    const auto nearest = nearest_settings(*source, train, data_bytes, budgets);
    outcome.result["nearest"] = nearest;
    print_notice("longtune: {}\n", refusal(plan, budgets, remedy_of(nearest)));
  }
  return outcome;
}

}  // namespace longtune::cli
