#include "train/run.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "io/atomic_file.h"
#include "train/metrics.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

// Checkpoints in `output`, oldest first, by step.
std::vector<std::pair<std::int64_t, fs::path>> checkpoints_in(const fs::path& output) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code ignored;  // no directory: no checkpoints
  for (const auto& entry : fs::directory_iterator(output / "checkpoints", ignored)) {
    const std::string name = entry.path().filename();
    std::int64_t step = 0;
    if (name.starts_with(kStepPrefix)) {
      const char* end = name.data() + name.size();
      const auto [rest, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
      if (error == std::errc{} && rest == end) {
        found.emplace_back(step, entry.path());
      }
    }
  }
  std::ranges::sort(found);
  return found;
}

void make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(ErrorCode::kIo, "train", "cannot make directory {}: {}", path.string(), error.message());
  }
}

// The state of one run_training call.
class Run {
 public:
  Run(Trainer& trainer, const RunOptions& options, RunObserver& observer)
      : trainer_(trainer), options_(options), observer_(observer) {}

  void begin();
  void save_checkpoint();
  void finish();

  /// Whether the step that was done last is to be evaluated.
  [[nodiscard]] bool is_evaluation_due() const;

 private:
  void remove_old_checkpoints();

  Trainer& trainer_;
  const RunOptions& options_;
  RunObserver& observer_;
  std::int64_t saved_step_ = 0;  ///< a run without a step has nothing to save
};

void Run::begin() {
  prepare_output(options_);
  remove_partials(options_.output);  // of a run that was killed
  remove_partials(options_.output / "checkpoints");
  const auto existing = checkpoints_in(options_.output);
  if (options_.resume && !existing.empty()) {
    trainer_.restore(existing.back().second);
    saved_step_ = trainer_.steps_done();
  }
  observer_.on_begin(trainer_.steps_done());
}

void Run::save_checkpoint() {
  const std::int64_t step = trainer_.steps_done();
  if (step == saved_step_) {
    return;
  }
  AtomicDirectory directory(options_.output / "checkpoints" / fmt::format("step-{}", step));
  trainer_.save(directory.partial(), options_.base_model);
  directory.commit();
  saved_step_ = step;
  remove_old_checkpoints();
  observer_.on_checkpoint(options_.output / "checkpoints" / fmt::format("step-{}", step));
}

void Run::remove_old_checkpoints() {
  if (options_.keep == 0) {
    return;
  }
  const auto existing = checkpoints_in(options_.output);
  const auto count = static_cast<std::int64_t>(existing.size());
  for (std::int64_t i = 0; i + options_.keep < count; ++i) {
    remove_directory(existing[i].second);
  }
}

bool Run::is_evaluation_due() const {
  const std::int64_t step = trainer_.steps_done();
  return trainer_.has_held_out() && options_.eval_every > 0 && step > 0 &&
         step % options_.eval_every == 0;
}

void Run::finish() {
  save_checkpoint();
  save_adapter(trainer_.adapter(), options_.output, options_.base_model);
}

}  // namespace

void check(const RunOptions& run) {
  const auto require = [](std::int64_t value, const char* option) {
    if (value < 0) {
      fail(ErrorCode::kInvalidArgument, "train", "{} {} is negative", option, value);
    }
  };
  require(run.save_every, "--save-every");
  require(run.keep, "--keep");
  require(run.eval_every, "--eval-every");
}

void prepare_output(const RunOptions& run) {
  check(run);
  make_directory(run.output / "checkpoints");
  const bool holds_results =
      !checkpoints_in(run.output).empty() || fs::exists(run.output / "adapter_model.safetensors");
  if (holds_results && !run.resume) {
    fail(ErrorCode::kInvalidArgument,
         "train",
         "{} holds the results of another run: name another --output, or go on with --resume",
         run.output.string());
  }
}

RunResult run_training(Trainer& trainer,
                       const RunOptions& options,
                       RunObserver& observer,
                       const std::atomic<bool>& stop) {
  Run run(trainer, options, observer);
  run.begin();
  MetricsFile metrics(options.output / "metrics.jsonl", trainer.steps_done());
  RunResult result{.steps = trainer.steps_done()};
  bool is_evaluation_missing = false;
  const auto evaluate_if_due = [&] {
    const std::int64_t step = trainer.steps_done();
    if (!run.is_evaluation_due() || metrics.is_evaluated(step)) {
      return;
    }
    const std::optional<double> nats = trainer.evaluate(stop);
    is_evaluation_missing = !nats;
    if (nats) {
      metrics.add_evaluation(step, *nats);
      observer.on_evaluation(step, *nats);
    }
  };
  evaluate_if_due();
  const std::int64_t steps = trainer.options().steps;
  while (trainer.steps_done() < steps && !stop) {
    const StepReport report = trainer.step();
    result.steps = report.step;
    observer.on_step(report);
    metrics.append(report, trainer, options.peak_flops);
    const bool is_due = options.save_every > 0 && report.step % options.save_every == 0;
    if (is_due || report.step == steps) {
      run.save_checkpoint();
    }
    evaluate_if_due();
  }
  result.tokens = metrics.tokens();
  result.seconds = metrics.seconds();
  result.finished = trainer.steps_done() >= steps && !is_evaluation_missing;
  if (result.finished) {
    run.finish();
  } else {
    run.save_checkpoint();
  }
  return result;
}

}  // namespace longtune
