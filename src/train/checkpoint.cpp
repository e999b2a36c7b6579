#include "train/checkpoint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "model/tensor_file.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// All that decides what is attended, in one value: what does not count has no say. Chunks of 64 are
// called pages, and seeing only what was asked for goes unsaid, as before there was a choice.
Json describe_attention(const AttentionOptions& attention) {
  if (attention.is_dense()) {
    return name_of(attention.kind);
  }
  const ops::HgaSettings& hga = attention.hga;
  return fmt::format(
      "{} {} per {}, {} and {} {}, {} of {} groups of {} a block of {}, {} chunks, {}{}",
      name_of(attention.kind),
      name_of(hga.routing),
      hga.per_query_head ? "query head" : "KV head",
      hga.first_chunks,
      hga.last_chunks,
      hga.chunk_pages() == 1 ? "pages" : fmt::format("chunks of {}", hga.chunk_tokens),
      hga.topk_groups,
      hga.capacity(),
      hga.group_tokens,
      hga.block_queries,
      hga.topk_chunks,
      name_of(attention.summary),
      hga.routing == ops::HgaRouting::kCausal && hga.sight == ops::HgaSight::kList ? ", whole lists"
                                                                                   : "");
}

// What determines the result of a run, as it stands in state.json; a budget or a thread count does
// not.
Json describe_options(const TrainOptions& options) {
  Json targets = Json::array();
  for (int kind = 0; kind < kLinearKinds; ++kind) {
    if (options.lora.targets[kind]) {
      targets.push_back(name_of(static_cast<LinearKind>(kind)));
    }
  }
  return {{"base-weights", name_of(options.model.base)},
          {"activations", name_of(options.model.activations)},
          {"kv", name_of(options.model.kv)},
          {"attention", describe_attention(options.model.attention)},
          {"rope-scaling", text_of(options.model.rope)},
          {"lora-rank", options.lora.rank},
          {"lora-alpha", options.lora.alpha},
          {"lora-dropout", options.lora.dropout},
          {"rslora", options.lora.rslora},
          {"lora-targets", targets},
          {"context", options.context},
          {"segment", options.segment},
          {"accumulate", options.accumulate},
          {"steps", options.steps},
          {"lr", options.lr},
          {"schedule", name_of(options.schedule)},
          {"warmup", options.warmup},
          {"clip", options.clip},
          {"weight-decay", options.weight_decay},
          {"beta1", options.beta1},
          {"beta2", options.beta2},
          {"epsilon", options.epsilon},
          {"shuffle", options.shuffle == Shuffle::kNone ? "none" : "epoch"},
          {"seed", options.seed}};
}

std::string fingerprint_text(std::uint64_t fingerprint) {
  return fmt::format("{:016x}", fingerprint);
}

void check_options(const nlohmann::json& saved,
                   const TrainOptions& options,
                   const std::string& file) {
  const Json wanted = describe_options(options);
  // A run may go on for longer: its next steps take their rates from the new schedule, whose
  // warm-up may be a share of the steps.
  const bool has_other_steps = saved.value("steps", std::int64_t{0}) != options.steps;
  for (const auto& [name, value] : wanted.items()) {
    if (name == "steps" || (name == "warmup" && has_other_steps)) {
      continue;
    }
    // Checkpoints from before there was a choice of RoPE scaling do not name it.
    const char* absent = name == "rope-scaling" ? "\"file\"" : "no value";
    const std::string before = saved.contains(name) ? saved.at(name).dump() : absent;
    if (before != value.dump()) {
      fail(ErrorCode::kInvalidArgument,
           "checkpoint",
           "{} was made with {} {}, but this run has {}: resume with the same options",
           file,
           name,
           before,
           value.dump());
    }
  }
}

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

}  // namespace

void save_checkpoint(const CheckpointState& state,
                     const fs::path& directory,
                     const std::string& base_model) {
  const Adapter& adapter = *state.adapter;
  save_adapter(adapter, directory, base_model);
  save_tensors(
      directory / kOptimizerFile,
      {{"first_moments", adapter.first_moments()}, {"second_moments", adapter.second_moments()}});
  const Json json{{"step", state.step},
                  {"cursor", state.cursor},
                  {"data_fingerprint", fingerprint_text(state.data_fingerprint)},
                  {"model_fingerprint", fingerprint_text(state.model_fingerprint)},
                  {"options", describe_options(*state.options)}};
  write_file(directory / kStateFile, json.dump(2) + "\n");
}

CheckpointPosition load_checkpoint(const CheckpointState& state, const fs::path& directory) {
  const std::string file = (directory / kStateFile).string();
  const nlohmann::json json = read_json(directory / kStateFile);
  try {
    check_options(json.at("options"), *state.options, file);
    if (json.at("data_fingerprint") != fingerprint_text(state.data_fingerprint)) {
      fail(ErrorCode::kInvalidArgument,
           "checkpoint",
           "{} was made with other data: resume with the same --data and tokenizer",
           file);
    }
    if (json.at("model_fingerprint") != fingerprint_text(state.model_fingerprint)) {
      fail(ErrorCode::kInvalidArgument,
           "checkpoint",
           "{} was made with another base model: resume with the same --model",
           file);
    }
    const CheckpointPosition position{.step = json.at("step").get<std::int64_t>(),
                                      .cursor = json.at("cursor").get<std::int64_t>()};
    if (position.step < 0 || position.cursor < 0) {
      fail(ErrorCode::kBadInput,
           "checkpoint",
           "{} stands at step {} and sample {}",
           file,
           position.step,
           position.cursor);
    }
    if (position.step > state.options->steps) {
      fail(ErrorCode::kInvalidArgument,
           "checkpoint",
           "--steps {} is fewer than the {} that {} has behind it: give {} or more",
           state.options->steps,
           position.step,
           file,
           position.step);
    }
    load_adapter(*state.adapter, directory);
    load_tensors(directory / kOptimizerFile,
                 {{"first_moments", state.adapter->first_moments()},
                  {"second_moments", state.adapter->second_moments()}});
    return position;
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kBadInput, "checkpoint", "{} is malformed: {}", file, error.what());
  }
}

}  // namespace longtune
