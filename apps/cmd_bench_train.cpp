#include "apps/bench_table.h"
#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "device/peak.h"
#include "device/profile.h"
#include "model/flops.h"
#include "model/source.h"
#include "train/remedy.h"

namespace longtune::cli {
namespace {

struct BenchArgs {
  ShapeArgs shape;
  CommonArgs common;
  std::int64_t steps = 2;
  std::int64_t warm_up = 1;
};

struct Measured {
  std::vector<OperationTotals> rows;
  StepReport step;                                ///< the fastest: others were disturbed more
  std::optional<TieredKvStore::Traffic> traffic;  ///< of all steps
};

/// Steps on random tokens after those that warm up; the fastest counts.
[[nodiscard]] Measured measure(Trainer& trainer, const BenchArgs& args) {
  for (std::int64_t i = 0; i < args.warm_up; ++i) {
    (void)trainer.step();
  }
  Measured best;
  for (std::int64_t i = 0; i < args.steps; ++i) {
    const Profile profile;
    const StepReport report = trainer.step();
    if (i == 0 || report.seconds < best.step.seconds) {
      best = {.rows = profile.rows(), .step = report};
    }
  }
  best.traffic = trainer.traffic();
  return best;
}

[[nodiscard]] BenchTotals totals_of(const Measured& measured, const Trainer& trainer) {
  const TrainOptions& options = trainer.options();
  return {.name = "step",
          .seconds = measured.step.seconds,
          .flops = measured.step.flops,
          .tokens = measured.step.tokens,
          .context = options.context,
          .attended = history_attended(options.model.attention, options.context, 0),
          .device_bytes = trainer.device_bytes_peak(),
          .plan = trainer.plan(),
          .traffic = measured.traffic};
}

}  // namespace

Outcome run_bench_train(const std::vector<std::string>& arguments,
                        std::optional<std::filesystem::path>& json) {
  BenchArgs args;
  OptionSet options("bench train --model PATH|--shape NAME [options]",
                    "Shows where the time of a training step on random tokens goes");
  add_shape_options(options, args.shape);
  add_shape_model_options(options, args.shape.model);
  options.group("Steps");
  options.add({"steps", "N", "measured; the fastest counts"}, args.steps);
  options.add({"warm-up", "N", "steps before these"}, args.warm_up);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  prepare(args.common, json);
  if (args.steps < 1) {
    fail(ErrorCode::kInvalidArgument, "bench", "--steps {} is below 1", args.steps);
  }
  if (args.warm_up < 0) {
    fail(ErrorCode::kInvalidArgument, "bench", "--warm-up {} is negative", args.warm_up);
  }

  const std::unique_ptr<ModelSource> source = open_source(options, args.shape.model);
  TrainOptions train = shape_options(options, args.shape);
  train.steps = args.steps + args.warm_up;
  const Budgets budgets = budgets_of(args.shape.memory, args.shape.model);
  check(train);
  const Dataset data = Dataset::random(2, train.context, source->config().V);
  train.kept = what_to_keep(*source, train, data.host_bytes(), budgets, args.shape.kept_bytes());
  Trainer trainer(*source, train, budgets, data, nullptr, args.shape.model.adapter, {});
  const double peak_flops = measure_peak_flops();
  const std::optional<DiskSpeed> disk =  // while nothing else is on it
      speed_of_disk(train.model, source->config(), trainer.plan());
  const Measured measured = measure(trainer, args);
  BenchTotals totals = totals_of(measured, trainer);
  totals.disk = disk;
  print_bench(measured.rows, totals, budgets, peak_flops);
  return {.result = bench_json(measured.rows, totals, peak_flops)};
}

}  // namespace longtune::cli
