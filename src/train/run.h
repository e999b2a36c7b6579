#pragma once

#include <atomic>
#include <filesystem>
#include <string>

#include "train/trainer.h"

namespace longtune {

/// Where a run's results go and when.
struct RunOptions {
  std::filesystem::path output;  ///< made where it does not exist
  std::int64_t save_every = 0;   ///< steps between checkpoints; 0: only at the end and when stopped
  std::int64_t keep = 2;         ///< newest checkpoints kept; 0: all
  std::int64_t eval_every = 0;   ///< steps between evaluations of the held-out data; 0: never
  bool resume =
      false;  ///< go on from the newest checkpoint in `output`; begin anew where there is none
  std::string base_model;  ///< what adapter_config.json names as the base
  double peak_flops = 0;   ///< the machine's measured limit, for share_of_limit; 0: not reported
};

/// Throws Error kInvalidArgument, naming the option as the command line spells it, where a number
/// is negative.
void check(const RunOptions& run);

/// Makes the output directory. Throws Error: kInvalidArgument where it holds another run's results
/// and is not resumed, or as check does; kIo where the system refuses. For callers that would know
/// before they load a model; run_training does the same.
void prepare_output(const RunOptions& run);

/// Told what happens, on the calling thread. Every method may be left out.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  /// The output directory is this run's, and the state is restored where a run is resumed: a run
  /// that is refused does not come to here. 0 steps are done where it begins anew.
  virtual void on_begin(std::int64_t /*steps_done*/) {}

  virtual void on_step(const StepReport& /*report*/) {}

  virtual void on_evaluation(std::int64_t /*step*/, double /*nats*/) {}

  virtual void on_checkpoint(const std::filesystem::path& /*directory*/) {}
};

struct RunResult {
  bool finished = false;  ///< false where `stop` ended it; its state is saved then
  // Of the whole run, what came before it was resumed included.
  std::int64_t steps = 0;
  std::int64_t tokens = 0;  ///< by metrics.jsonl
  double seconds = 0;       ///< by metrics.jsonl
};

/// Runs training to its end or until `stop` is set (polled between steps, and between the samples
/// of an evaluation), writing metrics.jsonl (one object a step), checkpoints/step-N/ (complete or
/// absent), and at the end the adapter in PEFT's format. A failing step leaves the last checkpoint
/// and what metrics.jsonl holds. A run resumed after a step that was to be evaluated and
/// was not begins with that evaluation. One that is stopped before its first step saves nothing, as
/// there is nothing to go on from. Refuses, kInvalidArgument, an output directory that holds
/// another run's results unless it is resumed.
[[nodiscard]] RunResult run_training(Trainer& trainer,
                                     const RunOptions& run,
                                     RunObserver& observer,
                                     const std::atomic<bool>& stop);

}  // namespace longtune
