#include <algorithm>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "apps/plan_table.h"
#include "device/peak.h"
#include "device/profile.h"
#include "model/source.h"
#include "ops/cpu/isa.h"
#include "train/remedy.h"

namespace longtune::cli {
namespace {

struct BenchArgs {
  ShapeArgs shape;
  CommonArgs common;
  std::int64_t steps = 2;
};

struct Measured {
  std::vector<OperationTotals> rows;
  StepReport step;  ///< the fastest: others were disturbed more
};

/// Steps on random tokens after one that warms up; the fastest counts.
[[nodiscard]] Measured measure(Trainer& trainer, std::int64_t steps) {
  (void)trainer.step();
  Measured best;
  for (std::int64_t i = 0; i < steps; ++i) {
    const Profile profile;
    const StepReport report = trainer.step();
    if (i == 0 || report.seconds < best.step.seconds) {
      best = {.rows = profile.rows(), .step = report};
    }
  }
  std::ranges::sort(best.rows, std::greater{}, &OperationTotals::seconds);
  return best;
}

void print_rows(const Measured& measured, double peak_flops) {
  print_output("{:<24}{:>8}{:>10}{:>9}{:>11}{:>10}\n",
               "operation",
               "calls",
               "seconds",
               "of step",
               "GFLOP/s",
               "of limit");
  double seconds = 0;
  for (const OperationTotals& row : measured.rows) {
    seconds += row.seconds;
    const double rate = row.flops / row.seconds;
    print_output("{:<24}{:>8}{:>10.3f}{:>7.1f} %{:>11}{:>10}\n",
                 row.name,
                 row.calls,
                 row.seconds,
                 100 * row.seconds / measured.step.seconds,
                 row.flops > 0 ? fmt::format("{:.1f}", rate * 1e-9) : "-",
                 row.flops > 0 ? fmt::format("{:.1f} %", 100 * rate / peak_flops) : "-");
  }
  const double other = measured.step.seconds - seconds;
  print_output("{:<24}{:>8}{:>10.3f}{:>7.1f} %\n",
               "between operations",
               "",
               other,
               100 * other / measured.step.seconds);
  print_output("step: {:.3f} s, {:.1f} tokens/s, {:.1f} % of the limit of {:.1f} GFLOP/s\n",
               measured.step.seconds,
               static_cast<double>(measured.step.tokens) / measured.step.seconds,
               100 * measured.step.flops / measured.step.seconds / peak_flops,
               peak_flops * 1e-9);
}

[[nodiscard]] Json row_json(const OperationTotals& row, double peak_flops) {
  Json json{{"name", row.name}, {"calls", row.calls}, {"seconds", row.seconds}, {"share", nullptr}};
  if (row.flops > 0) {
    json["share"] = row.flops / row.seconds / peak_flops;
  }
  return json;
}

[[nodiscard]] Json bench_json(const Measured& measured, const Trainer& trainer, double peak_flops) {
  const StepReport& step = measured.step;
  Json rows = Json::array();
  for (const OperationTotals& row : measured.rows) {
    rows.push_back(row_json(row, peak_flops));
  }
  rows.push_back({{"name", "step"},
                  {"seconds", step.seconds},
                  {"share", step.flops / step.seconds / peak_flops},
                  {"context", trainer.options().context},
                  {"tokens_per_s", static_cast<double>(step.tokens) / step.seconds},
                  {"device_bytes_peak", trainer.device_bytes_peak()},
                  {"host_bytes_peak", trainer.host_bytes_peak()},
                  {"disk_bytes_peak", 0},
                  {"attended_fraction", 1.0}});
  return {{"machine", {{"isa", ops::name_of(ops::selected_isa())}, {"peak_flops", peak_flops}}},
          {"rows", rows}};
}

}  // namespace

Outcome run_bench_train(const std::vector<std::string>& arguments,
                        std::optional<std::filesystem::path>& json) {
  BenchArgs args;
  OptionSet options("bench train --model PATH [options]",
                    "Shows where the time of a training step on random tokens goes");
  add_shape_options(options, args.shape);
  add_shape_model_options(options, args.shape.model);
  options.add({"steps", "N", "measured, after one that warms up; the fastest counts"}, args.steps);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  prepare(args.common, json);
  if (args.steps < 1) {
    fail(ErrorCode::kInvalidArgument, "bench", "--steps {} is below 1", args.steps);
  }

  const std::unique_ptr<ModelSource> source = open_source(options, args.shape.model);
  TrainOptions train = shape_options(options, args.shape);
  train.steps = args.steps + 1;
  const Budgets budgets = args.shape.memory.budgets();
  check(train);
  const Dataset data = Dataset::random(2, train.context, source->config().V);
  train.keep_attention = can_keep_attention(*source, train, data.host_bytes(), budgets);
  Trainer trainer(*source, train, budgets, data, nullptr, args.shape.model.adapter, {});
  const double peak_flops = measure_peak_flops();
  const Measured measured = measure(trainer, args.steps);
  print_rows(measured, peak_flops);
  return {.result = bench_json(measured, trainer, peak_flops)};
}

}  // namespace longtune::cli
