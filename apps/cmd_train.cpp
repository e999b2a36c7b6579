#include <fmt/format.h>

#include <cmath>
#include <fstream>

#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "apps/plan_table.h"
#include "apps/progress.h"
#include "apps/rope_record.h"
#include "apps/stop_signal.h"
#include "apps/text_model.h"
#include "base/bytes.h"
#include "device/peak.h"
#include "io/atomic_file.h"
#include "io/spill_file.h"
#include "train/remedy.h"

namespace longtune::cli {
namespace {

struct TrainArgs {
  ShapeArgs shape;
  DataArgs data;
  CommonArgs common;
  TrainOptions train;
  RunOptions run;
  std::optional<std::int64_t> steps;
  std::optional<double> epochs;
  Warmup warmup;
};

void add_options(OptionSet& options, TrainArgs& args, std::optional<std::filesystem::path>& json) {
  add_shape_options(options, args.shape);
  add_data_options(options, args.data);
  options.add_choice({"shuffle", "HOW", "order of the samples: epoch (anew in each), none"},
                     args.train.shuffle,
                     {{"epoch", Shuffle::kEachEpoch}, {"none", Shuffle::kNone}});
  options.add({"eval-every", "N", "steps between evaluations", "only the last"},
              args.run.eval_every);
  options.group("Optimiser");
  options.add({"steps", "N", "optimiser steps", "by --epochs"}, args.steps);
  options.add({"epochs", "X", "passes over the data", "1"}, args.epochs);
  options.add({"accumulate", "N", "samples an optimiser step"}, args.train.accumulate);
  options.add({"lr", "X", "highest learning rate"}, args.train.lr);
  options.add_choice({"schedule", "KIND", "cosine, linear, constant"},
                     args.train.schedule,
                     {{"cosine", ScheduleKind::kCosine},
                      {"linear", ScheduleKind::kLinear},
                      {"constant", ScheduleKind::kConstant}});
  options.add({"warmup", "N|P%", "steps, or share of them, over which the rate rises"},
              args.warmup);
  options.add({"clip", "X", "largest gradient norm; 0: none"}, args.train.clip);
  options.add({"weight-decay", "X", "AdamW's decay of the adapter"}, args.train.weight_decay);
  options.add({"seed", "N", "of adapter, order and dropout"}, args.train.seed);
  options.group("Output");
  options.add({"output", "DIR", "where the adapter, checkpoints and metrics go"}, args.run.output);
  options.add({"save-every", "N", "steps between checkpoints", "only the last"},
              args.run.save_every);
  options.add({"keep", "N", "newest checkpoints kept; 0: all"}, args.run.keep);
  options.add({"resume", "", "go on from the newest checkpoint in --output", "", false},
              args.run.resume);
  add_common_options(options, args.common, json);
}

/// Steps as asked for, or as many as the epochs take. Only one of both is left in `args`, and so in
/// the resolved configuration.
[[nodiscard]] std::int64_t steps_of_run(const OptionSet& options,
                                        TrainArgs& args,
                                        std::int64_t samples) {
  if (options.choose("steps", "epochs") == "steps") {
    args.epochs.reset();
    return *args.steps;
  }
  args.steps.reset();
  args.epochs = args.epochs.value_or(1);
  if (!(*args.epochs > 0 && *args.epochs < 1e9)) {
    fail(ErrorCode::kInvalidArgument,
         "options",
         "--epochs {} is not above 0 and below 1e9",
         *args.epochs);
  }
  const double per_step = static_cast<double>(std::max<std::int64_t>(1, args.train.accumulate));
  return static_cast<std::int64_t>(
      std::ceil(*args.epochs * static_cast<double>(samples) / per_step));
}

/// The options with everything resolved that depends on the data.
[[nodiscard]] TrainOptions resolve(const OptionSet& options,
                                   TrainArgs& args,
                                   std::int64_t samples) {
  TrainOptions train = shape_options(options, args.shape, args.train);
  train.steps = steps_of_run(options, args, samples);
  train.warmup = args.warmup.steps_of(train.steps);
  check(train);
  return train;
}

/// Shows a run's steps and what it saves; leaves the resolved configuration.
class RunProgress : public RunObserver {
 public:
  RunProgress(const Trainer& trainer,
              const TrainArgs& args,
              const Budgets& budgets,
              std::string configuration,
              Progress& progress)
      : trainer_(trainer),
        output_(args.run.output),
        is_resumed_(args.run.resume),
        configuration_(std::move(configuration)),
        steps_(trainer.options().steps),
        progress_(progress) {
    context_.steps = steps_;
    context_.peak_flops = args.run.peak_flops;
    context_.budgets = budgets;
  }

  void on_begin(std::int64_t steps_done) override {
    write_file(output_ / "run.toml", configuration_);
    if (steps_done > 0) {
      progress_.note(fmt::format("resumed after step {} of {}", steps_done, steps_));
    } else if (is_resumed_) {
      progress_.note(fmt::format("no checkpoint in {}: the run begins anew", output_.string()));
    }
  }

  void on_step(const StepReport& report) override {
    seconds_ += report.seconds;
    ++done_;
    context_.device_bytes = trainer_.device_bytes_peak();
    context_.host_bytes = trainer_.host_bytes_peak();
    context_.seconds_left =
        seconds_ / static_cast<double>(done_) * static_cast<double>(steps_ - report.step);
    const std::string line = step_line(report, context_);
    if (report.step == steps_) {
      progress_.last(line);
    } else {
      progress_.update(line);
    }
  }

  void on_evaluation(std::int64_t step, double nats) override {
    progress_.note(fmt::format("step {}: held-out {:.4f} nats", step, nats));
    held_out_nats_ = nats;
  }

  void on_checkpoint(const std::filesystem::path& directory) override {
    progress_.note(fmt::format("saved {}", directory.string()));
  }

  [[nodiscard]] std::optional<double> held_out_nats() const { return held_out_nats_; }

 private:
  const Trainer& trainer_;
  std::filesystem::path output_;
  bool is_resumed_;
  std::string configuration_;
  std::int64_t steps_;
  Progress& progress_;
  StepContext context_;
  double seconds_ = 0;
  std::int64_t done_ = 0;
  std::optional<double> held_out_nats_;
};

/// The last line of metrics.jsonl; an empty object where there is none.
[[nodiscard]] Json last_metrics(const std::filesystem::path& output) {
  std::ifstream file(output / "metrics.jsonl");
  std::string last;
  for (std::string line; std::getline(file, line);) {
    last = line;
  }
  const Json parsed = Json::parse(last, nullptr, false);
  return parsed.is_object() ? parsed : Json::object();
}

[[nodiscard]] Json result_json(const RunResult& result,
                               const Trainer& trainer,
                               const RunProgress& observer,
                               const TrainArgs& args) {
  Json json = last_metrics(args.run.output);
  json["steps"] = result.steps;
  json["tokens"] = result.tokens;
  json["device_bytes_peak"] = trainer.device_bytes_peak();
  json["host_bytes_peak"] = trainer.host_bytes_peak();
  json["disk_bytes_peak"] = trainer.plan().need(Tier::kDisk);
  json["seconds"] = result.seconds;
  json["output"] = args.run.output.string();
  if (observer.held_out_nats()) {
    json["held_out_nats"] = *observer.held_out_nats();
  }
  return json;
}

void describe_run(const TrainArgs& args,
                  const TextModel& model,
                  const Dataset& data,
                  const std::optional<Dataset>& held_out,
                  const TrainOptions& train,
                  const Plan& plan,
                  const Budgets& budgets,
                  double peak_flops) {
  if (args.common.is_quiet) {
    return;
  }
  print_notice("data: {}\n", describe(data.summary()));
  if (held_out) {
    print_notice("held out: {}\n", describe(held_out->summary()));
  }
  print_notice("{}", plan_table(plan, budgets));
  print_notice("{}", context_note(model.source->config(), train.model.rope, train.context));
  const double seconds = step_flops(model.source->config(), train) / peak_flops;
  print_notice("{} steps of {} x {} tokens: at least {} at this machine's {:.0f} GFLOP/s\n",
               train.steps,
               train.accumulate,
               train.context,
               duration_text(seconds * static_cast<double>(train.steps)),
               peak_flops / 1e9);
}

[[nodiscard]] Interrupted interrupted_after(std::int64_t steps,
                                            const std::filesystem::path& output) {
  return Interrupted(
      steps == 0 ? "[train] interrupted before it made a step; there is nothing new to save"
                 : fmt::format("[train] interrupted after step {}; the adapter and the run's state "
                               "are in {}/checkpoints/step-{}; the same command with --resume goes "
                               "on from there",
                               steps,
                               output.string(),
                               steps));
}

/// Throws Interrupted once a stop is requested, where there is nothing to save yet.
class StopCheck {
 public:
  explicit StopCheck(const std::atomic<bool>& stop) : stop_(stop) {}

  void operator()() const {
    if (stop_) {
      throw interrupted_after(0, {});
    }
  }

 private:
  const std::atomic<bool>& stop_;
};

/// `encoder`, which asks `check` before every text.
[[nodiscard]] TextEncoder interruptible(TextEncoder encoder, const StopCheck& check) {
  encoder.encode = [encode = std::move(encoder.encode), check](std::string_view text) {
    check();
    return encode(text);
  };
  return encoder;
}

}  // namespace

std::vector<std::string> train_option_names() {
  TrainArgs args;
  std::optional<std::filesystem::path> json;
  OptionSet options("", "");
  add_options(options, args, json);
  return options.names();
}

Outcome run_train(const std::vector<std::string>& arguments,
                  std::optional<std::filesystem::path>& json) {
  TrainArgs args;
  OptionSet options("train --model PATH --data PATH... --output DIR [options]",
                    "Trains a LoRA adapter");
  add_options(options, args, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  for (const char* name : {"model", "data", "output"}) {
    options.require(name);
  }
  check(args.run);
  prepare(args.common, json);
  const StopOnSignal signals;
  const StopCheck check_stop(signals.stop_requested());
  const Budgets budgets = budgets_of(args.shape.memory, args.shape.model);

  const TextModel model = open_text_model(args.shape.model.model);
  const TextEncoder encoder = interruptible(text_encoder(model.tokenizer), check_stop);
  const Dataset data = load_data(args.data.data, args.data, args.shape.context, encoder);
  std::optional<Dataset> held_out;
  if (!args.data.eval_data.empty()) {
    held_out = load_data(args.data.eval_data, args.data, args.shape.context, encoder);
  }
  TrainOptions train = resolve(options, args, data.size());
  if (held_out && args.run.eval_every == 0) {
    args.run.eval_every = train.steps;
  }
  args.run.base_model = args.shape.model.model.string();
  args.run.peak_flops = measure_peak_flops();
  write_notice(rope_note(args.shape.model.adapter, model.source->config(), train.model.rope));
  const std::int64_t data_bytes = data.host_bytes() + (held_out ? held_out->host_bytes() : 0);
  train.kept = what_to_keep(*model.source, train, data_bytes, budgets, args.shape.kept_bytes());
  describe_run(args,
               model,
               data,
               held_out,
               train,
               Trainer::plan(*model.source, train, data_bytes),
               budgets,
               args.run.peak_flops);
  // Before anything is made or loaded.
  (void)Trainer::plan_within(*model.source, train, budgets, data_bytes);
  if (args.shape.model.spill_dir) {
    check_spill_directory(*args.shape.model.spill_dir);
  }
  prepare_output(args.run);

  Progress progress(stderr, progress_mode(args.common.is_quiet, args.common.is_verbose));
  Trainer trainer(*model.source,
                  train,
                  budgets,
                  data,
                  held_out ? &*held_out : nullptr,
                  args.shape.model.adapter,
                  [&](double share) {
                    check_stop();
                    progress.share("loading weights", share);
                  });
  RunProgress observer(trainer, args, budgets, options.toml(), progress);
  const RunResult result = run_training(trainer, args.run, observer, signals.stop_requested());
  if (!result.finished) {
    throw interrupted_after(result.steps, args.run.output);
  }
  print_output("trained {} steps; the adapter is in {}\n", result.steps, args.run.output.string());
  return {.result = result_json(result, trainer, observer, args)};
}

}  // namespace longtune::cli
