// Training on a tiny model: what must not change a result, and that nothing is lost.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "device/threads.h"
#include "support/expect_error.h"
#include "support/training.h"
#include "train/remedy.h"
#include "train/run.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using test::dataset_of;
using test::text_of;
using test::trained_bytes;

const std::atomic<bool> kGoOn = false;

class Training : public testing::Test {
 protected:
  Training()
      : source_(open_model(test::goldens() / "models" / "qwen2")),
        data_(dataset_of({text_of(700, 1), text_of(450, 2)}, 100, scratch_)) {
    options_.model = {.activations = DType::kF32, .kv = DType::kF32};
    options_.lora.rank = 4;
    options_.lora.dropout = 0.1;
    options_.context = 128;
    options_.segment = 64;
    options_.accumulate = 2;
    options_.steps = 6;
    options_.lr = 1e-2;
    options_.warmup = 1;
    options_.seed = 7;
  }

  [[nodiscard]] std::unique_ptr<Trainer> trainer() const {
    return std::make_unique<Trainer>(
        *source_, options_, Budgets{}, data_, &data_, std::nullopt, nullptr);
  }

  // A run into `name`, stopped after the step numbered `stop_after` if that is not 0.
  RunResult run(const std::string& name, bool resume, std::int64_t stop_after) {
    struct Stopper : RunObserver {
      std::atomic<bool> stop = false;
      std::int64_t after = 0;

      void on_step(const StepReport& report) override { stop = report.step == after; }
    } observer;

    observer.after = stop_after;
    const RunOptions run{.output = scratch_.path() / name, .save_every = 2, .resume = resume};
    return run_training(*trainer(), run, observer, observer.stop);
  }

  // Steps and their held-out losses in metrics.jsonl.
  [[nodiscard]] std::vector<std::pair<std::int64_t, double>> held_out_in(
      const std::string& name) const {
    std::vector<std::pair<std::int64_t, double>> found;
    std::ifstream file(scratch_.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto object = nlohmann::json::parse(line);
      if (object.contains("held_out_nats")) {
        found.emplace_back(object.at("step"), object.at("held_out_nats"));
      }
    }
    return found;
  }

  [[nodiscard]] std::string result_of(const std::string& name) const {
    return trained_bytes(scratch_.path() / name / "checkpoints" / "step-6") +
           trained_bytes(scratch_.path() / name);
  }

  TemporaryDirectory scratch_;
  std::unique_ptr<ModelSource> source_;
  Dataset data_;
  TrainOptions options_;
};

TEST_F(Training, LowersTheLoss) {
  options_.steps = 30;
  options_.warmup = 2;
  const auto trained = trainer();
  const double before = *trained->evaluate(kGoOn);
  for (int i = 0; i < 30; ++i) {
    (void)trained->step();
  }
  EXPECT_LT(*trained->evaluate(kGoOn), before - 0.3);
}

TEST_F(Training, ARunStoppedAfterAnyStepEndsAsOneNeverStopped) {
  EXPECT_TRUE(run("whole", false, 0).finished);
  for (std::int64_t stop = 1; stop < 6; ++stop) {
    const std::string name = "stopped-" + std::to_string(stop);
    const RunResult first = run(name, false, stop);
    EXPECT_FALSE(first.finished);
    EXPECT_EQ(first.steps, stop);
    EXPECT_TRUE(run(name, true, 0).finished);
    EXPECT_EQ(result_of(name), result_of("whole")) << "stopped after step " << stop;
  }
}

TEST_F(Training, ARunStoppedBeforeItsFirstStepSavesNothing) {
  RunObserver observer;
  const std::atomic<bool> stop = true;
  const RunOptions options{.output = scratch_.path() / "unbegun"};
  const RunResult result = run_training(*trainer(), options, observer, stop);
  EXPECT_FALSE(result.finished);
  EXPECT_EQ(result.steps, 0);
  EXPECT_TRUE(fs::is_empty(options.output / "checkpoints"));
  EXPECT_TRUE(run("unbegun", false, 0).finished);
}

TEST_F(Training, TokensAndSecondsOfAResumedRunAreOfAllItsSteps) {
  const RunResult whole = run("whole", false, 0);
  const RunResult first = run("parts", false, 4);
  const RunResult second = run("parts", true, 0);
  EXPECT_GT(first.tokens, 0);
  EXPECT_LT(first.tokens, whole.tokens);
  EXPECT_EQ(second.tokens, whole.tokens);
  EXPECT_GT(second.seconds, first.seconds);
}

TEST_F(Training, RefusesNegativeNumbersOfARunByOption) {
  const auto refuses = [&](const RunOptions& options, std::string_view message) {
    expect_error([&] { prepare_output(options); }, ErrorCode::kInvalidArgument, message);
    EXPECT_FALSE(fs::exists(options.output));
  };
  const fs::path output = scratch_.path() / "negative";
  refuses({.output = output, .save_every = -1}, "--save-every -1 is negative");
  refuses({.output = output, .keep = -2}, "--keep -2 is negative");
  refuses({.output = output, .eval_every = -3}, "--eval-every -3 is negative");
}

TEST_F(Training, RefusesAScheduleOrAContextThatCannotBe) {
  const auto refuses = [&](std::string_view message) {
    expect_error([&] { check(options_); }, ErrorCode::kInvalidArgument, message);
  };
  check(options_);
  options_.warmup = 7;
  refuses("--warmup 7 is not in 0 .. 6");
  options_.warmup = 0;
  options_.steps = 0;
  refuses("--steps 0 is below 1");
  options_.steps = 1;
  options_.context = kLongestContext + 1;
  refuses("--context 2147483648 is not in 2 .. 2147483647");
}

TEST_F(Training, LoadingEndsWithWhatItsProgressThrows) {
  struct Stop {};

  EXPECT_THROW(Trainer(*source_,
                       options_,
                       Budgets{},
                       data_,
                       nullptr,
                       std::nullopt,
                       [](double) { throw Stop{}; }),
               Stop);
}

TEST_F(Training, AnEvaluationThatIsStoppedIsMadeUpForAfterResuming) {
  struct Evaluations : RunObserver {
    std::atomic<bool> stop = false;
    bool is_to_stop = false;
    std::vector<std::pair<std::int64_t, double>> nats;

    void on_step(const StepReport& report) override { stop = is_to_stop && report.step == 6; }

    void on_evaluation(std::int64_t step, double value) override { nats.emplace_back(step, value); }
  };

  const auto evaluated = [&](const std::string& name, bool resume, bool is_to_stop) {
    Evaluations observer;
    observer.is_to_stop = is_to_stop;
    const RunOptions run{.output = scratch_.path() / name, .eval_every = 3, .resume = resume};
    const RunResult result = run_training(*trainer(), run, observer, observer.stop);
    EXPECT_EQ(result.finished, !is_to_stop);
    EXPECT_EQ(result.steps, 6);
    return observer.nats;
  };
  const auto whole = evaluated("evaluated", false, false);
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[0].first, 3);
  EXPECT_EQ(whole[1].first, 6);
  EXPECT_NE(whole[0].second, whole[1].second);

  const auto first = evaluated("stopped", false, true);
  EXPECT_EQ(first, std::vector(whole.begin(), whole.begin() + 1));
  EXPECT_FALSE(fs::exists(scratch_.path() / "stopped" / "adapter_model.safetensors"));
  const auto second = evaluated("stopped", true, false);
  EXPECT_EQ(second, std::vector(whole.begin() + 1, whole.end()));
  EXPECT_EQ(result_of("stopped"), result_of("evaluated"));
  EXPECT_EQ(held_out_in("stopped"), held_out_in("evaluated"));
  EXPECT_EQ(held_out_in("stopped"), whole);
  EXPECT_TRUE(evaluated("stopped", true, false).empty());  // nothing is left to do
}

TEST_F(Training, AResumedRunDoesWithoutItsMetrics) {
  struct Evaluations : RunObserver {
    int count = 0;

    void on_evaluation(std::int64_t, double) override { ++count; }
  } observer;

  const std::atomic<bool> stop = false;
  RunOptions run{.output = scratch_.path() / "bare", .eval_every = 6};
  (void)run_training(*trainer(), run, observer, stop);
  const fs::path metrics = run.output / "metrics.jsonl";
  const std::string lines = test::read_text(metrics);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 6);
  EXPECT_EQ(observer.count, 1);
  run.resume = true;
  (void)run_training(*trainer(), run, observer, stop);
  EXPECT_EQ(test::read_text(metrics), lines);
  EXPECT_EQ(observer.count, 1);
  fs::remove(metrics);
  EXPECT_TRUE(run_training(*trainer(), run, observer, stop).finished);
  EXPECT_EQ(observer.count, 2);
  EXPECT_EQ(test::read_text(metrics), "");
}

TEST_F(Training, ThreadCountChangesNoBit) {
  std::vector<std::string> results;
  for (const int threads : {1, 2, 3, 8}) {
    use_threads(threads);
    const std::string name = "threads-" + std::to_string(threads);
    (void)run(name, false, 0);
    results.push_back(result_of(name));
  }
  use_threads(available_cores());
  for (const std::string& result : results) {
    EXPECT_EQ(result, results.front());
  }
}

TEST_F(Training, GuardedMemoryChangesNoBit) {
  constexpr const char* kGuard = "LONGTUNE_GUARD_ARENA";
  const char* value = std::getenv(kGuard);  // the test presets guard
  const std::string before = value == nullptr ? "0" : value;
  setenv(kGuard, "0", 1);
  (void)run("plain", false, 0);
  setenv(kGuard, "1", 1);
  (void)run("guarded", false, 0);
  setenv(kGuard, before.c_str(), 1);
  EXPECT_EQ(result_of("guarded"), result_of("plain"));
}

TEST_F(Training, WhatIsKeptChangesNoBit) {
  const std::int64_t L = source_->config().L;
  for (const std::int64_t segment : {0, 64}) {
    options_.segment = segment;
    options_.kept = {};
    const std::string name = "recomputed-" + std::to_string(segment);
    (void)run(name, false, 0);
    for (const Kept kept : {Kept{.attention = true},
                            Kept{.product_layers = 1},
                            Kept{.attention = true, .product_layers = 1},
                            Kept{.attention = true, .product_layers = L}}) {
      options_.kept = kept;
      const std::string other = "kept-" + std::to_string(kept.attention) + "-" +
                                std::to_string(kept.product_layers) + "-" + name;
      (void)run(other, false, 0);
      EXPECT_EQ(result_of(other), result_of(name)) << other;
    }
  }
}

TEST_F(Training, WhatIsKeptIsNotCountedTwice) {
  const auto flops_of = [&](Kept kept) {
    options_.kept = kept;
    return trainer()->step().flops;
  };
  const std::int64_t L = source_->config().L;
  const double none = flops_of({});
  const double attention = flops_of({.attention = true});
  const double one = flops_of({.attention = true, .product_layers = 1});
  const double all = flops_of({.attention = true, .product_layers = L});
  EXPECT_LT(attention, none);
  EXPECT_LT(all, one);
  EXPECT_NEAR(attention - all, static_cast<double>(L) * (attention - one), 1e-6 * none);
}

TEST_F(Training, OffloadingChangesNoBitAndTakesLessOfTheDevice) {
  options_.segment = 64;
  (void)run("device", false, 0);
  const Plan all = Trainer::plan(*source_, options_, 0);
  for (const Offload offload : {Offload{.inputs = true}, Offload{.moments = true}}) {
    options_.offload = offload;
    const std::string name = offload.inputs ? "inputs" : "moments";
    (void)run(name, false, 0);
    EXPECT_EQ(result_of(name), result_of("device")) << name;
    const Plan plan = Trainer::plan(*source_, options_, 0);
    if (offload.inputs) {
      EXPECT_LT(plan.need(Tier::kDevice), all.need(Tier::kDevice));
    }
    EXPECT_GT(plan.need(Tier::kHost), all.need(Tier::kHost));
  }
}

TEST_F(Training, KeepsWhatTheBudgetHasRoomFor) {
  const auto source = open_model(test::goldens() / "models" / "llama_llama3");
  ASSERT_EQ(source->config().L, 3);
  const auto need_of = [&](Kept kept) {
    TrainOptions tried = options_;
    tried.kept = kept;
    return Trainer::plan(*source, tried, 0).need(Tier::kDevice);
  };
  const auto kept_within = [&](std::int64_t device, std::int64_t product_bytes) {
    return what_to_keep(*source, options_, 0, {.device = device}, product_bytes);
  };
  const std::int64_t much = std::int64_t{1} << 40;
  const Kept attention{.attention = true};
  const Kept one{.attention = true, .product_layers = 1};
  const Kept all{.attention = true, .product_layers = 3};
  EXPECT_EQ(kept_within(need_of(attention) - 1, much), Kept{});
  EXPECT_EQ(kept_within(need_of(attention), much), attention);
  EXPECT_EQ(kept_within(need_of(one) - 1, much), attention);
  EXPECT_EQ(kept_within(need_of(one), much), one);
  // Where all layers have room of their own, none is shared beside it.
  EXPECT_EQ(need_of({.attention = true, .product_layers = 2}), need_of(all));
  EXPECT_EQ(kept_within(need_of(all) - 1, much), one);
  EXPECT_EQ(kept_within(need_of(all), much), all);
  const std::int64_t one_layer = need_of(one) - need_of(attention);
  EXPECT_EQ(kept_within(much, one_layer), one);
  EXPECT_EQ(kept_within(much, one_layer - 1), attention);
  EXPECT_EQ(kept_within(much, 0), attention);
  TrainOptions tried = options_;
  tried.kept = one;
  const std::int64_t both = need_of(one) + Trainer::plan(*source, tried, 0).need(Tier::kHost);
  EXPECT_EQ(what_to_keep(*source, options_, 0, {.machine_memory = both}, much), one);
  EXPECT_EQ(what_to_keep(*source, options_, 0, {.machine_memory = both - 1}, much), attention);
}

TEST_F(Training, AStepsLossAndGradientAreThoseOfAllItsTargets) {
  options_.lora.dropout = 0;
  options_.shuffle = Shuffle::kNone;
  options_.accumulate = data_.size();
  const auto all = trainer();
  const StepReport together = all->step();
  options_.accumulate = 1;
  options_.steps = data_.size();
  options_.lr = 0;
  const auto single = trainer();
  double loss = 0;
  std::int64_t targets = 0;
  std::vector<double> gradient(single->adapter().parameters());
  std::vector<float> part(gradient.size());
  for (std::int64_t i = 0; i < data_.size(); ++i) {
    const StepReport report = single->step();
    loss += report.loss * static_cast<double>(report.targets);
    targets += report.targets;
    const TensorView& flat = single->adapter().gradients();
    copy_to_host(part.data(), flat, flat.bytes());
    for (std::size_t j = 0; j < part.size(); ++j) {
      gradient[j] += part[j] * static_cast<double>(report.targets);
    }
  }
  EXPECT_EQ(targets, together.targets);
  EXPECT_NEAR(together.loss, loss / static_cast<double>(targets), 1e-6);
  const TensorView& flat = all->adapter().gradients();
  copy_to_host(part.data(), flat, flat.bytes());
  std::vector<float> expected(gradient.size());
  for (std::size_t j = 0; j < part.size(); ++j) {
    expected[j] = static_cast<float>(gradient[j] / static_cast<double>(targets));
  }
  EXPECT_LE(test::relative_error(part, expected), 1e-5);
}

// A segment of a prompt alone is read and not scored; one without anything to score after it is
// left out.
TEST_F(Training, ALongPromptIsReadBeforeWhatIsScored) {
  const fs::path file = scratch_.path() / "prompts.jsonl";
  std::ofstream(file) << nlohmann::json{{"prompt", text_of(70, 3)}, {"completion", text_of(20, 4)}}
                      << '\n'
                      << nlohmann::json{{"prompt", text_of(30, 5)}, {"completion", text_of(34, 6)}}
                      << '\n';
  data_ = Dataset::load({.documents = {.paths = {file}}, .context = 128}, test::byte_encoder(96));
  options_.lora.dropout = 0;
  const StepReport segments = trainer()->step();
  options_.segment = 0;
  const StepReport whole = trainer()->step();
  EXPECT_EQ(segments.tokens, 91 + 65);
  EXPECT_EQ(segments.targets, 21 + 35);
  EXPECT_EQ(segments.targets, whole.targets);
  EXPECT_NEAR(segments.loss, whole.loss, 1e-6);
  EXPECT_LT(segments.flops, whole.flops);
}

TEST_F(Training, ASegmentAsLongAsTheContextIsTheWholeSequenceAtOnce) {
  options_.segment = 128;
  const StepReport segment = trainer()->step();
  options_.segment = 0;
  const StepReport whole = trainer()->step();
  EXPECT_EQ(segment.loss, whole.loss);
  EXPECT_EQ(segment.grad_norm, whole.grad_norm);
}

TEST_F(Training, SegmentsSeeTheSameLossAsTheWholeSequence) {
  options_.lora.dropout = 0;
  const StepReport segments = trainer()->step();
  options_.segment = 0;
  const StepReport whole = trainer()->step();
  EXPECT_NEAR(segments.loss, whole.loss, 1e-6);
  EXPECT_NE(segments.grad_norm, whole.grad_norm);  // history is detached
}

TEST_F(Training, ALossThatIsNotFiniteStopsTheRunAndKeepsTheLastCheckpoint) {
  options_.lr = 1e30;
  options_.warmup = 0;
  options_.schedule = ScheduleKind::kConstant;
  options_.clip = 0;
  RunObserver observer;
  const std::atomic<bool> stop = false;
  const RunOptions run{.output = scratch_.path() / "diverged", .save_every = 1};
  try {
    (void)run_training(*trainer(), run, observer, stop);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(fs::exists(run.output / "checkpoints" / "step-1" / "state.json"));
  EXPECT_FALSE(fs::exists(run.output / "checkpoints" / "step-2"));
}

TEST_F(Training, PlanEqualsTheArenasHighWaterMark) {
  for (const std::int64_t segment : {0, 64}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const BaseWeights base : {BaseWeights::kFile, BaseWeights::kBf16}) {
        options_.kept.attention = !options_.kept.attention;
        options_.kept.product_layers = (options_.kept.product_layers + 1) % 3;
        options_.offload.inputs = !options_.offload.inputs;
        options_.offload.moments = segment == 0;
        options_.segment = segment;
        options_.model = {.base = base, .activations = dtype, .kv = dtype};
        const auto trained = trainer();
        (void)trained->step();
        EXPECT_EQ(trained->device_bytes_peak(), trained->plan().need(Tier::kDevice));
      }
    }
  }
}

TEST_F(Training, RefusesWhatDoesNotFitWithTheNearestSettingsThatDo) {
  options_.segment = 0;
  options_.context = 4096;
  const std::int64_t need = Trainer::plan(*source_, options_, 0).need(Tier::kDevice);
  try {
    const Trainer refused(
        *source_, options_, Budgets{.device = need / 2}, data_, nullptr, std::nullopt, nullptr);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfBudget);
    EXPECT_NE(std::string(error.what()).find("it fits with --segment"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("--context"), std::string::npos) << error.what();
  }
}

TEST_F(Training, RefusesWhatTheMachineHasNoMemoryFor) {
  const Plan plan = Trainer::plan(*source_, options_, data_.host_bytes());
  const std::int64_t need = plan.need(Tier::kDevice) + plan.need(Tier::kHost);
  (void)Trainer(
      *source_, options_, Budgets{.machine_memory = need}, data_, nullptr, std::nullopt, nullptr);
  expect_error(
      [&] {
        const Trainer refused(*source_,
                              options_,
                              Budgets{.device = need, .machine_memory = need - 1},
                              data_,
                              nullptr,
                              std::nullopt,
                              nullptr);
      },
      ErrorCode::kOutOfBudget,
      "but this machine has " + format_bytes(need - 1) + " for both");
}

TEST_F(Training, ARefusalNamesTwoSettingsWhereOneIsNotEnough) {
  options_.context = 4096;
  TrainOptions least = options_;
  least.offload = {.inputs = true, .moments = true};
  least.segment = 448;
  const std::int64_t need = Trainer::plan(*source_, least, 0).need(Tier::kDevice);
  options_.segment = 4096;
  const auto nearest = nearest_settings(*source_, options_, 0, {.device = need + 1000});
  ASSERT_FALSE(nearest.empty());
  EXPECT_EQ(nearest.front(), "--offload both --segment 448");
}

TEST_F(Training, RefusesToResumeWithOtherOptionsOrData) {
  (void)run("first", false, 3);
  const auto message = [&] {
    try {
      (void)run("first", true, 0);
      return std::string("no error");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
  };
  options_.lr = 2e-2;
  EXPECT_NE(message().find("made with lr 0.01, but this run has 0.02"), std::string::npos)
      << message();
  options_.lr = 1e-2;
  options_.warmup = 2;  // with as many steps: no other schedule that would go on for longer
  EXPECT_NE(message().find("made with warmup 1, but this run has 2"), std::string::npos)
      << message();
  options_.warmup = 1;
  data_ = dataset_of({text_of(700, 5)}, 100, scratch_);
  EXPECT_NE(message().find("made with other data"), std::string::npos) << message();
}

// With a constant rate to the bit what the longer run gives; else at the longer schedule's rates.
TEST_F(Training, GoesOnForMoreSteps) {
  const std::int64_t steps = options_.steps;
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kCosine}) {
    options_.schedule = kind;
    const std::string name = name_of(kind);
    options_.steps = steps + 3;
    (void)run("long-" + name, false, 0);
    options_.steps = steps;
    EXPECT_TRUE(run(name, false, 0).finished);
    options_.steps = steps + 3;
    options_.warmup = kind == ScheduleKind::kConstant ? 1 : 2;  // it may be a share of the steps
    EXPECT_TRUE(run(name, true, 0).finished);
    options_.warmup = 1;
    const auto file = [&](const std::string& output) {
      return test::read_text(scratch_.path() / output / "adapter_model.safetensors");
    };
    EXPECT_EQ(file(name) == file("long-" + name), kind == ScheduleKind::kConstant);
    std::ifstream lines(scratch_.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      const auto step = json.at("step").get<std::int64_t>();
      const Schedule schedule{.kind = kind,
                              .peak = options_.lr,
                              .warmup = step > steps && kind == ScheduleKind::kCosine ? 2 : 1,
                              .steps = step > steps ? steps + 3 : steps};
      EXPECT_DOUBLE_EQ(json.at("lr").get<double>(), schedule.at(step)) << name << " " << step;
    }
    options_.steps = steps;
    try {
      (void)run(name, true, 0);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what())
                    .find(fmt::format("--steps {} is fewer than the {} that ", steps, steps + 3)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_F(Training, ResumesFromBeforeThereWasAChoiceOfRopeScaling) {
  (void)run("old", false, 2);
  const fs::path state = scratch_.path() / "old" / "checkpoints" / "step-2" / "state.json";
  auto json = nlohmann::json::parse(test::read_text(state));
  ASSERT_EQ(json.at("options").erase("rope-scaling"), 1U);
  std::ofstream(state) << json;
  EXPECT_TRUE(run("old", true, 0).finished);
  json.at("options").erase("seed");
  std::ofstream(scratch_.path() / "old" / "checkpoints" / "step-6" / "state.json") << json;
  EXPECT_THROW((void)run("old", true, 0), Error);
}

TEST_F(Training, RefusesToResumeOnAnotherBaseModel) {
  (void)run("first", false, 3);
  // The same shapes with one other value in the last tensor's last row.
  const fs::path other = scratch_.path() / "other";
  fs::copy(test::goldens() / "models" / "qwen2", other);
  std::fstream file(other / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put(0);
  file.close();
  source_ = open_model(other);
  try {
    (void)run("first", true, 0);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("made with another base model"), std::string::npos)
        << error.what();
  }
}

TEST_F(Training, RefusesAnOutputThatHoldsAnotherRun) {
  (void)run("done", false, 0);
  try {
    (void)run("done", false, 0);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("--resume"), std::string::npos) << error.what();
  }
}

TEST_F(Training, StartsFromASavedAdapter) {
  (void)run("first", false, 0);
  options_.lora = read_lora_config(scratch_.path() / "first");
  const Trainer next(
      *source_, options_, Budgets{}, data_, nullptr, scratch_.path() / "first", nullptr);
  save_adapter(next.adapter(), scratch_.path(), "base");
  EXPECT_EQ(trained_bytes(scratch_.path()), trained_bytes(scratch_.path() / "first"));
}

}  // namespace
}  // namespace longtune
