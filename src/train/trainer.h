#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/plan.h"
#include "kv/tiered_store.h"
#include "model/adapter.h"
#include "model/options.h"
#include "model/source.h"
#include "train/data.h"
#include "train/sample_order.h"
#include "train/schedule.h"

namespace longtune {

/// What determines the result of a training run, besides model and data, and how it is computed.
struct TrainOptions {
  ModelOptions model;
  LoraConfig lora;
  std::int64_t context = 2048;  ///< the longest sample, in tokens
  std::int64_t segment =
      2048;  ///< of a segment, in tokens: a multiple of 64, of HGA's chunk too; 0: all at once
  std::int64_t accumulate = 1;  ///< samples an optimiser step
  std::int64_t steps = 0;       ///< optimiser steps of the whole run; the schedule ends there
  double lr = 2e-4;
  ScheduleKind schedule = ScheduleKind::kCosine;
  std::int64_t warmup = 0;  ///< steps
  double clip = 1.0;        ///< largest gradient norm; 0: no clipping
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  Shuffle shuffle = Shuffle::kEachEpoch;
  std::uint64_t seed = 0;  ///< of the adapter, the order of samples, and dropout
  Kept kept;
  Offload offload;
};

/// Throws Error kInvalidArgument, naming the option as the command line spells it.
void check(const TrainOptions& options);

/// What one optimiser step did.
struct StepReport {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;        ///< nats a target, mean over all targets of the step
  double lr = 0;
  double grad_norm = 0;  ///< before clipping
  std::int64_t tokens = 0;
  std::int64_t targets = 0;
  double seconds = 0;
  double flops = 0;                   ///< operations of the step, by formula
  std::vector<std::int64_t> samples;  ///< indices in the data set, in the order consumed
};

/// Fine-tunes an adapter segment by segment: each segment runs forward, takes its share of the
/// loss, runs backward at once; then its keys and values are detached and become history. The loss
/// of a step is the sum over the targets of all its samples divided by their number.
class Trainer {
 public:
  /// What a run would need, with `data_bytes` of host memory for the data; loads nothing.
  [[nodiscard]] static Plan plan(const ModelSource& source,
                                 const TrainOptions& options,
                                 std::int64_t data_bytes);

  /// The same plan, where it fits the budgets. Throws Error kOutOfBudget, with the nearest settings
  /// that do, where it does not.
  [[nodiscard]] static Plan plan_within(const ModelSource& source,
                                        const TrainOptions& options,
                                        const Budgets& budgets,
                                        std::int64_t data_bytes);

  /// Takes the memory and loads the weights. The adapter is initialised from the seed, or read from
  /// `start`, a PEFT adapter to go on from. `data` and `held_out`, null where there is none, must
  /// outlive the trainer. Throws Error kOutOfBudget as plan_within does.
  Trainer(const ModelSource& source,
          const TrainOptions& options,
          const Budgets& budgets,
          const Dataset& data,
          const Dataset* held_out,
          const std::optional<std::filesystem::path>& start,
          const std::function<void(double)>& load_progress);  ///< what it throws ends the loading
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One optimiser step over the next `accumulate` samples. A loss or gradient that is not finite
  /// throws, before any parameter has changed, an Error that names the step: kBadInput at the first
  /// step, where only what was read can be at fault, else kInvalidArgument, as the settings led to
  /// it.
  StepReport step();

  /// Mean nats a target of the held-out data under the present adapter; changes nothing. Nothing
  /// where `stop`, polled between samples, ended it. There must be held-out data. Nats that are not
  /// finite throw as in step().
  [[nodiscard]] std::optional<double> evaluate(const std::atomic<bool>& stop);

  [[nodiscard]] std::int64_t steps_done() const;
  [[nodiscard]] const TrainOptions& options() const;
  [[nodiscard]] const Adapter& adapter() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] bool has_held_out() const;

  /// What moved between the tiers so far; nothing where keys and values are on the device.
  [[nodiscard]] std::optional<TieredKvStore::Traffic> traffic() const;

  /// The device memory really taken at its highest, and the host's by the plan.
  [[nodiscard]] std::int64_t device_bytes_peak() const;
  [[nodiscard]] std::int64_t host_bytes_peak() const;

  /// Everything a resumed run needs to be bit-identical to one never stopped: the adapter in PEFT's
  /// format, `optimizer.safetensors` with the moments, and `state.json` with step, data cursor and
  /// options. `directory` exists and is empty.
  void save(const std::filesystem::path& directory, const std::string& base_model) const;

  /// Continues from what save() wrote; steps, and with them the warm-up, may be others than then.
  /// Throws Error kBadInput where the checkpoint is malformed, and kInvalidArgument, naming the
  /// first difference, where it does not belong to these options or this data, or has more steps
  /// behind it.
  void restore(const std::filesystem::path& directory);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longtune
