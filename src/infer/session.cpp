#include "infer/session.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "ops/head_loss.h"
#include "train/data.h"
#include "train/remedy.h"

namespace longtune {
namespace {

DecoderOptions decoder_options(const SessionOptions& options) {
  DecoderOptions result{.model = options.model,
                        .use = ModelUse::kInference,
                        .context = options.context,
                        .cell_tokens = options.block};
  if (options.adapter) {
    result.lora = read_lora_config(*options.adapter);
  }
  return result;
}

void check(const SessionOptions& options) {
  if (options.context < 1 || options.context > kLongestContext) {
    fail(ErrorCode::kInvalidArgument,
         "session",
         "--context {} is not in 1 .. {}",
         options.context,
         kLongestContext);
  }
  if (options.block < 1) {
    fail(ErrorCode::kInvalidArgument, "session", "a block of {} tokens", options.block);
  }
}

}  // namespace

struct Session::State {
  Plan plan;
  Arena arena;
  Decoder decoder;
  SessionOptions options;
  std::int64_t tokens = 0;

  State(const ModelSource& source, const SessionOptions& wanted, std::int64_t device_bytes)
      : arena(device_bytes, Arena::Options::from_environment()),
        decoder(source, decoder_options(wanted), arena, plan),
        options(wanted) {}
};

Plan Session::plan(const ModelSource& source, const SessionOptions& options) {
  check(options);
  return plan_decoder(source, decoder_options(options));
}

Session::Session(const ModelSource& source,
                 const SessionOptions& options,
                 const Budgets& budgets,
                 const std::function<void(double)>& load_progress) {
  const Plan needed = plan(source, options);
  if (!fits(needed, budgets)) {
    const auto plan_with = [&](const ModelOptions& model) {
      SessionOptions tried = options;
      tried.model = model;
      return plan(source, tried);
    };
    const auto spill = fitting_spill(options.model, plan_with, budgets);
    fail_out_of_budget(needed,
                       budgets,
                       (spill ? "it fits with " + *spill + "; " : std::string()) +
                           "fewer tokens (--context, --max-tokens) need less");
  }
  state_ = std::make_unique<State>(source, options, needed.need(Tier::kDevice));
  state_->plan = needed;
  state_->decoder.load(source, load_progress);
  if (options.adapter) {
    load_adapter(*state_->decoder.adapter(), *options.adapter);
  }
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

void Session::reset() {
  state_->tokens = 0;
}

std::int64_t Session::tokens() const {
  return state_->tokens;
}

std::int64_t Session::context() const {
  return state_->options.context;
}

const ModelConfig& Session::config() const {
  return state_->decoder.config();
}

const Plan& Session::plan() const {
  return state_->plan;
}

std::optional<TieredKvStore::Traffic> Session::traffic() const {
  return state_->decoder.traffic();
}

std::int64_t Session::device_bytes_peak() const {
  return state_->arena.high_water();
}

std::int64_t Session::host_bytes_peak() const {
  return state_->plan.need(Tier::kHost);
}

void Session::advance(std::span<const std::int32_t> tokens,
                      const std::function<void(std::int64_t, std::int64_t)>& after_block) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  if (total < 1 || state_->tokens + total > context()) {
    fail(ErrorCode::kInvalidArgument,
         "session",
         "{} tokens after {} do not fit a context of {}: raise --context",
         total,
         state_->tokens,
         context());
  }
  for (std::int64_t first = 0; first < total;) {
    const std::int64_t count = std::min(state_->options.block, total - first);
    state_->decoder.forward(tokens.subspan(first, count), state_->tokens);
    state_->tokens += count;
    after_block(first, count);
    first += count;
  }
}

std::vector<float> Session::read(std::span<const std::int32_t> tokens) {
  advance(tokens, [](std::int64_t, std::int64_t) {});
  return state_->decoder.last_logits();
}

std::vector<float> Session::score(std::span<const std::int32_t> tokens,
                                  std::span<const std::int32_t> targets) {
  if (tokens.size() != targets.size()) {
    fail(ErrorCode::kInvalidArgument,
         "session",
         "{} targets do not match {} tokens",
         targets.size(),
         tokens.size());
  }
  std::vector<float> nats(tokens.size());
  advance(tokens, [&](std::int64_t first, std::int64_t count) {
    const auto part = targets.subspan(first, count);
    // Blocks without a target skip the head.
    if (std::ranges::any_of(part, [](std::int32_t target) { return target != ops::kNoTarget; })) {
      std::ranges::copy(state_->decoder.losses(part), nats.begin() + first);
    }
  });
  return nats;
}

}  // namespace longtune
