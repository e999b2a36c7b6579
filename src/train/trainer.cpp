#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "model/decoder.h"
#include "model/flops.h"
#include "ops/head_loss.h"
#include "ops/optimizer.h"
#include "train/checkpoint.h"
#include "train/remedy.h"

namespace longtune {
namespace {

// Streams of the seed.
enum Stream : std::uint64_t { kAdapterStream, kOrderStream, kDropoutStream };

DecoderOptions decoder_options(const TrainOptions& options) {
  const bool whole = options.segment == 0 || options.segment >= options.context;
  return {.model = options.model,
          .use = ModelUse::kTraining,
          .context = options.context,
          .cell_tokens = whole ? options.context : options.segment,
          .kv_keep = whole ? KvKeep::kOneLayer : KvKeep::kAllLayers,
          .lora = options.lora,
          .kept = options.kept,
          .offload = options.offload};
}

void require(bool holds, const char* option, const std::string& value, const std::string& rule) {
  if (!holds) {
    fail(ErrorCode::kInvalidArgument, "train", "{} {} {}", option, value, rule);
  }
}

Schedule schedule_of(const TrainOptions& options) {
  return {.kind = options.schedule,
          .peak = options.lr,
          .warmup = options.warmup,
          .steps = options.steps};
}

// Before the first update what was read is at fault; after it the settings that led here.
[[noreturn]] void fail_not_finite(std::int64_t steps_done, const std::string& what) {
  if (steps_done == 0) {
    fail(ErrorCode::kBadInput,
         "train",
         "{} before any parameter has changed: the model's weights, or those of --adapter, are not "
         "finite or far too large",
         what);
  }
  fail(ErrorCode::kInvalidArgument,
       "train",
       "{}: training diverges; a lower --lr or a longer --warmup may help",
       what);
}

double sum(const std::vector<float>& values) {
  double result = 0;
  for (const float value : values) {
    result += value;
  }
  return result;
}

}  // namespace

void check(const TrainOptions& options) {
  const auto text = [](auto value) { return fmt::format("{}", value); };
  check(options.lora);
  check(options.model.attention);
  require(options.context >= 2 && options.context <= kLongestContext,
          "--context",
          text(options.context),
          fmt::format("is not in 2 .. {}", kLongestContext));
  require(options.segment >= 0 && options.segment % ops::kPageTokens == 0,
          "--segment",
          text(options.segment),
          "is neither 0 nor a positive multiple of 64");
  const std::int64_t unit = options.model.attention.segment_unit();
  require(options.segment % unit == 0,
          "--segment",
          text(options.segment),
          fmt::format("is not a multiple of --hga.chunk {}: give {}",
                      unit,
                      (std::min(options.segment, kLongestContext) / unit + 1) * unit));
  require(options.accumulate >= 1, "--accumulate", text(options.accumulate), "is below 1");
  check(schedule_of(options));
  require(std::isfinite(options.clip) && options.clip >= 0,
          "--clip",
          text(options.clip),
          "is not >= 0");
  require(std::isfinite(options.weight_decay) && options.weight_decay >= 0,
          "--weight-decay",
          text(options.weight_decay),
          "is not >= 0");
}

struct Trainer::State {
  TrainOptions options;
  const Dataset* data;
  const Dataset* held_out;
  Plan plan;
  Arena arena;
  Decoder decoder;
  SampleOrder order;
  std::int64_t segment;  ///< tokens of a cell
  std::int64_t steps_done = 0;
  std::int64_t cursor = 0;  ///< samples consumed
  std::vector<std::int32_t> targets;

  State(const ModelSource& source,
        const TrainOptions& wanted,
        const Dataset& read,
        const Dataset* evaluated,
        const Plan& needed)
      : options(wanted),
        data(&read),
        held_out(evaluated),
        arena(needed.need(Tier::kDevice), Arena::Options::from_environment()),
        decoder(source, decoder_options(wanted), arena, plan),
        order(read.size(), wanted.shuffle, random_key(wanted.seed, kOrderStream)),
        segment(decoder_options(wanted).cell_tokens) {
    plan = needed;
  }

  enum class Pass : std::uint8_t { kTraining, kEvaluation };

  // Runs a sample through its segments and returns the sum of its losses; in training also adds
  // grad_scale times the gradient of that sum to the adapter's.
  double run_sample(const Sample& sample, Pass pass, float grad_scale, double& flops);

  void update(double lr, double grad_norm);
};

Plan Trainer::plan(const ModelSource& source,
                   const TrainOptions& options,
                   std::int64_t data_bytes) {
  check(options);
  Plan plan = plan_decoder(source, decoder_options(options));
  plan.add("data", Tier::kHost, data_bytes);
  return plan;
}

Plan Trainer::plan_within(const ModelSource& source,
                          const TrainOptions& options,
                          const Budgets& budgets,
                          std::int64_t data_bytes) {
  Plan needed = plan(source, options, data_bytes);
  if (!fits(needed, budgets)) {
    fail_out_of_budget(
        needed, budgets, remedy_of(nearest_settings(source, options, data_bytes, budgets)));
  }
  return needed;
}

Trainer::Trainer(const ModelSource& source,
                 const TrainOptions& options,
                 const Budgets& budgets,
                 const Dataset& data,
                 const Dataset* held_out,
                 const std::optional<std::filesystem::path>& start,
                 const std::function<void(double)>& load_progress) {
  std::int64_t data_bytes = 0;
  for (const Dataset* read : {&data, held_out}) {
    if (read == nullptr) {
      continue;
    }
    data_bytes += read->host_bytes();
    if (read->longest_sample() > options.context) {
      fail(ErrorCode::kInvalidArgument,
           "train",
           "a sample of {} tokens is longer than --context {}",
           read->longest_sample(),
           options.context);
    }
  }
  const Plan needed = plan_within(source, options, budgets, data_bytes);
  state_ = std::make_unique<State>(source, options, data, held_out, needed);
  state_->decoder.load(source, load_progress);
  Adapter& adapter = *state_->decoder.adapter();
  if (start) {
    load_adapter(adapter, *start);
  } else {
    adapter.initialise(random_key(options.seed, kAdapterStream));
  }
  fill_zero(adapter.first_moments());
  fill_zero(adapter.second_moments());
}

Trainer::~Trainer() = default;

double Trainer::State::run_sample(const Sample& sample,
                                  Pass pass,
                                  float grad_scale,
                                  double& flops) {
  const auto length = static_cast<std::int64_t>(sample.tokens.size());
  targets.resize(length);
  sample.write_targets(targets);
  std::optional<std::uint64_t> dropout_key;
  if (pass == Pass::kTraining) {
    dropout_key = random_key(random_key(options.seed, kDropoutStream), cursor);
  }
  double loss = 0;
  for (std::int64_t first = 0; first < length; first += segment) {
    const std::int64_t count = std::min(segment, length - first);
    const auto part = std::span<const std::int32_t>(targets).subspan(first, count);
    // The last token has no target; a segment of it alone, or of a prompt alone at the end, is
    // done.
    if (std::ranges::all_of(std::span(targets).subspan(first),
                            [](std::int32_t target) { return target == ops::kNoTarget; })) {
      break;
    }
    const std::int64_t scored =
        std::ranges::count_if(part, [](std::int32_t target) { return target != ops::kNoTarget; });
    decoder.forward(sample.tokens.subspan(first, count), first, dropout_key);
    if (scored == 0) {
      flops +=
          forward_flops(decoder.config(), &options.lora, options.model.attention, count, first, 0);
    } else if (pass == Pass::kTraining) {
      loss += sum(decoder.losses_and_gradients(part, grad_scale));
      flops += training_flops(
          decoder.config(),
          options.lora,
          options.model.attention,
          {.tokens = count, .first_position = first, .scored = scored, .kept = options.kept});
    } else {
      loss += sum(decoder.losses(part));
    }
  }
  return loss;
}

void Trainer::State::update(double lr, double grad_norm) {
  const Adapter& adapter = *decoder.adapter();
  // As torch.nn.utils.clip_grad_norm_ scales.
  const double scale = options.clip > 0 ? std::min(1.0, options.clip / (grad_norm + 1e-6)) : 1.0;
  adapter.update({.grad_scale = static_cast<float>(scale),
                  .lr = lr,
                  .beta1 = options.beta1,
                  .beta2 = options.beta2,
                  .eps = options.epsilon,
                  .weight_decay = options.weight_decay,
                  .step = steps_done + 1});
}

StepReport Trainer::step() {
  State& state = *state_;
  const auto start = std::chrono::steady_clock::now();
  StepReport report{.step = state.steps_done + 1,
                    .lr = schedule_of(state.options).at(state.steps_done + 1)};
  for (std::int64_t i = 0; i < state.options.accumulate; ++i) {
    report.samples.push_back(state.order.sample_index(state.cursor + i));
    const Sample sample = state.data->sample(report.samples.back());
    report.tokens += static_cast<std::int64_t>(sample.tokens.size());
    report.targets += sample.target_count();
  }
  const Adapter& adapter = *state.decoder.adapter();
  fill_zero(adapter.gradients());
  const auto grad_scale = static_cast<float>(1.0 / static_cast<double>(report.targets));
  const std::int64_t first = state.cursor;
  for (const std::int64_t index : report.samples) {
    report.loss += state.run_sample(
        state.data->sample(index), State::Pass::kTraining, grad_scale, report.flops);
    ++state.cursor;
  }
  report.loss /= static_cast<double>(report.targets);
  report.grad_norm = std::sqrt(ops::sum_of_squares(adapter.gradients()));
  if (!std::isfinite(report.loss) || !std::isfinite(report.grad_norm)) {
    state.cursor = first;
    fail_not_finite(state.steps_done,
                    fmt::format("step {} has a loss of {} and a gradient norm of {}",
                                report.step,
                                report.loss,
                                report.grad_norm));
  }
  state.update(report.lr, report.grad_norm);
  ++state.steps_done;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::optional<double> Trainer::evaluate(const std::atomic<bool>& stop) {
  const Dataset& data = *state_->held_out;
  double loss = 0;
  std::int64_t targets = 0;
  double flops = 0;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    if (stop) {
      return std::nullopt;
    }
    const Sample sample = data.sample(i);
    loss += state_->run_sample(sample, State::Pass::kEvaluation, 0, flops);
    targets += sample.target_count();
  }
  const double nats = loss / static_cast<double>(targets);
  if (!std::isfinite(nats)) {
    fail_not_finite(state_->steps_done, fmt::format("the held-out data has {} nats a token", nats));
  }
  return nats;
}

std::int64_t Trainer::steps_done() const {
  return state_->steps_done;
}

const TrainOptions& Trainer::options() const {
  return state_->options;
}

const Adapter& Trainer::adapter() const {
  return *state_->decoder.adapter();
}

const Plan& Trainer::plan() const {
  return state_->plan;
}

bool Trainer::has_held_out() const {
  return state_->held_out != nullptr;
}

std::optional<TieredKvStore::Traffic> Trainer::traffic() const {
  return state_->decoder.traffic();
}

std::int64_t Trainer::device_bytes_peak() const {
  return state_->arena.high_water();
}

std::int64_t Trainer::host_bytes_peak() const {
  return state_->plan.need(Tier::kHost);
}

void Trainer::save(const std::filesystem::path& directory, const std::string& base_model) const {
  save_checkpoint({.adapter = state_->decoder.adapter(),
                   .options = &state_->options,
                   .step = state_->steps_done,
                   .cursor = state_->cursor,
                   .data_fingerprint = state_->data->fingerprint(),
                   .model_fingerprint = state_->decoder.fingerprint()},
                  directory,
                  base_model);
}

void Trainer::restore(const std::filesystem::path& directory) {
  const CheckpointPosition position =
      load_checkpoint({.adapter = state_->decoder.adapter(),
                       .options = &state_->options,
                       .data_fingerprint = state_->data->fingerprint(),
                       .model_fingerprint = state_->decoder.fingerprint()},
                      directory);
  state_->steps_done = position.step;
  state_->cursor = position.cursor;
}

}  // namespace longtune
