#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
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

// Fields of PEFT that do not change what an adapter computes, whatever they hold, and those that
// read_lora_config reads itself.
constexpr std::array kReadOrHarmless{"auto_mapping",
                                     "base_model_name_or_path",
                                     "bias",
                                     "inference_mode",
                                     "init_lora_weights",
                                     "lora_alpha",
                                     "lora_dropout",
                                     "megatron_core",
                                     "peft_type",
                                     "peft_version",
                                     "qalora_group_size",
                                     "r",
                                     "revision",
                                     "target_modules",
                                     "task_type",
                                     "use_rslora"};

[[noreturn]] void refuse(const JsonFields& fields, const std::string& name, const char* why) {
  const nlohmann::json& value = *fields.find(name);
  fail(ErrorCode::kUnsupported,
       "adapter",
       "{}: {} {} is {}",
       fields.name(),
       in_quotes(name),
       in_quotes(value.is_string() ? value.get<std::string>() : value.dump()),
       why);
}

// What PEFT writes for a setting that is not used.
bool is_unused(const nlohmann::json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

// Refuses every setting that is in use and not known to be harmless: PEFT gains new ones with each
// version, and many of them change what an adapter computes or the base that it belongs to.
void refuse_unsupported(const nlohmann::json& json, const JsonFields& fields) {
  if (fields.required_string("peft_type") != "LORA") {
    refuse(fields, "peft_type", "not LORA");
  }
  if (fields.string("bias").value_or("none") != "none") {
    refuse(fields, "bias", "not none");
  }
  // Other ways to begin (PiSSA, OLoRA, LoftQ, CorDA) change the base weights too.
  if (const nlohmann::json* init = fields.find("init_lora_weights");
      init != nullptr && !init->is_boolean() && *init != "gaussian") {
    refuse(fields, "init_lora_weights", "none of true, false and gaussian");
  }
  for (const auto& [name, value] : json.items()) {
    if (!is_unused(value) && std::ranges::find(kReadOrHarmless, name) == kReadOrHarmless.end()) {
      refuse(fields, name, "not supported");
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
           in_quotes(name));
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

LoraConfig parse_lora_config(const nlohmann::json& json, const std::string& file) {
  const JsonFields fields(json, file);
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

LoraConfig read_lora_config(const fs::path& directory) {
  return parse_lora_config(read_json(directory / kConfigFile), (directory / kConfigFile).string());
}

void load_adapter(Adapter& adapter, const fs::path& directory) {
  load_tensors(directory / kWeightsFile, named_tensors(adapter));
}

}  // namespace longtune
