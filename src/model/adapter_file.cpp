#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/tensor_file.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kConfigFile = "adapter_config.json";

// The adapter's matrices under PEFT's names.
std::vector<NamedTensor> named_tensors(const Adapter& adapter) {
  std::vector<NamedTensor> result;
  for (std::int64_t layer = 0; layer < adapter.model().L; ++layer) {
    for (int i = 0; i < kLinearKinds; ++i) {
      const auto kind = static_cast<LinearKind>(i);
      if (!adapter.config().has(kind)) {
        continue;
      }
      const Adapter::Pair& pair = adapter.pair(layer, kind);
      const std::string name =
          fmt::format("base_model.model.model.layers.{}.{}", layer, module_of(kind));
      result.push_back({name + ".lora_A.weight", pair.a});
      result.push_back({name + ".lora_B.weight", pair.b});
    }
  }
  return result;
}

Json target_names(const LoraConfig& config) {
  Json targets = Json::array();
  for (int kind = 0; kind < kLinearKinds; ++kind) {
    if (config.targets[kind]) {
      targets.push_back(name_of(static_cast<LinearKind>(kind)));
    }
  }
  return targets;
}

// Settings of PEFT that change what an adapter computes, with the values that mean "not used".
void refuse_unsupported(const nlohmann::json& json, const JsonFields& fields) {
  if (fields.required_string("peft_type") != "LORA") {
    fail(ErrorCode::kUnsupported,
         "adapter",
         "{}: peft_type {} is not LORA",
         fields.name(),
         fields.required_string("peft_type"));
  }
  if (const auto bias = fields.string("bias"); bias && *bias != "none") {
    fail(ErrorCode::kUnsupported, "adapter", "{}: bias {} is not none", fields.name(), *bias);
  }
  for (const char* name : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
    if (fields.boolean(name).value_or(false)) {
      fail(ErrorCode::kUnsupported, "adapter", "{}: {} is not supported", fields.name(), name);
    }
  }
  for (const char* name : {"rank_pattern",
                           "alpha_pattern",
                           "modules_to_save",
                           "layers_to_transform",
                           "layers_pattern",
                           "layer_replication",
                           "trainable_token_indices",
                           "exclude_modules",
                           "target_parameters",
                           "megatron_config",
                           "alora_invocation_tokens"}) {
    if (const auto found = json.find(name);
        found != json.end() && !found->is_null() && !found->empty()) {
      fail(ErrorCode::kUnsupported,
           "adapter",
           "{}: {} {} is not supported",
           fields.name(),
           name,
           found->dump());
    }
  }
}

std::array<bool, kLinearKinds> read_targets(const JsonFields& fields) {
  const nlohmann::json* listed = fields.find("target_modules");
  if (listed == nullptr || !listed->is_array()) {
    fail(ErrorCode::kUnsupported,
         "adapter",
         "{}: target_modules is no list of names",
         fields.name());
  }
  std::array<bool, kLinearKinds> targets{};
  for (const nlohmann::json& entry : *listed) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : entry.dump();
    int kind = 0;
    while (kind < kLinearKinds && name != name_of(static_cast<LinearKind>(kind))) {
      ++kind;
    }
    if (kind == kLinearKinds) {
      fail(ErrorCode::kUnsupported,
           "adapter",
           "{}: target module {} is none of the linear layers of a block",
           fields.name(),
           name);
    }
    targets[kind] = true;
  }
  return targets;
}

}  // namespace

void save_adapter(const Adapter& adapter,
                  const fs::path& directory,
                  const std::string& base_model) {
  save_tensors(directory / kWeightsFile, named_tensors(adapter));
  const LoraConfig& config = adapter.config();
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = base_model;
  json["r"] = config.rank;
  // PEFT writes whole numbers without a point.
  if (config.alpha == std::floor(config.alpha)) {
    json["lora_alpha"] = static_cast<std::int64_t>(config.alpha);
  } else {
    json["lora_alpha"] = config.alpha;
  }
  json["lora_dropout"] = config.dropout;
  json["use_rslora"] = config.rslora;
  json["target_modules"] = target_names(config);
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["inference_mode"] = true;
  write_file(directory / kConfigFile, json.dump(2) + "\n");
}

LoraConfig read_lora_config(const fs::path& directory) {
  const nlohmann::json json = read_json(directory / kConfigFile);
  const JsonFields fields(json, (directory / kConfigFile).string());
  refuse_unsupported(json, fields);
  LoraConfig config{.rank = fields.required_integer("r"),
                    .alpha = fields.required_number("lora_alpha"),
                    .dropout = fields.number("lora_dropout").value_or(0),
                    .rslora = fields.boolean("use_rslora").value_or(false),
                    .targets = read_targets(fields)};
  try {
    check(config);
  } catch (const Error& error) {
    fail(ErrorCode::kBadInput, "adapter", "{}: {}", fields.name(), error.what());
  }
  return config;
}

void load_adapter(Adapter& adapter, const fs::path& directory) {
  load_tensors(directory / kWeightsFile, named_tensors(adapter));
}

}  // namespace longtune
