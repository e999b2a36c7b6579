#include "model/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "io/json.h"

namespace longtune {
namespace {

using nlohmann::json;

struct Architecture {
  std::string_view class_name;
  const char* model_type;
};

constexpr std::array<Architecture, 4> kArchitectures{{{"LlamaForCausalLM", "llama"},
                                                      {"MistralForCausalLM", "mistral"},
                                                      {"Qwen2ForCausalLM", "qwen2"},
                                                      {"Qwen3ForCausalLM", "qwen3"}}};

template <class... Args>
[[noreturn]] void unsupported(const JsonFields& fields,
                              fmt::format_string<Args...> format,
                              Args&&... args) {
  fail(ErrorCode::kUnsupported,
       "model",
       "{}: {}",
       fields.name(),
       fmt::format(format, std::forward<Args>(args)...));
}

// The one class that `architectures` names, or nothing where the field is absent.
std::optional<std::string> class_name(const JsonFields& fields) {
  const json* list = fields.find("architectures");
  if (list == nullptr) {
    return std::nullopt;
  }
  if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
    fail(
        ErrorCode::kBadInput, "model", "{}: 'architectures' is no list of one name", fields.name());
  }
  return list->front().get<std::string>();
}

std::string read_architecture(const JsonFields& fields) {
  const std::optional<std::string> name = class_name(fields);
  const std::optional<std::string> type = fields.string("model_type");
  for (const Architecture& known : kArchitectures) {
    if (name.value_or(std::string(known.class_name)) == known.class_name &&
        type.value_or(known.model_type) == known.model_type && (name || type)) {
      return known.model_type;
    }
  }
  unsupported(fields,
              "architecture {} (model type {}) is not understood; Llama, Mistral, Qwen2 and Qwen3 "
              "for causal language modelling are",
              in_quotes(name.value_or("")),
              in_quotes(type.value_or("")));
}

void refuse_foreign_features(const JsonFields& fields) {
  if (const auto act = fields.string("hidden_act"); act && *act != "silu") {
    unsupported(fields, "hidden_act {} is not understood; 'silu' is", in_quotes(*act));
  }
  if (fields.find("quantization_config") != nullptr) {
    unsupported(fields,
                "quantization_config: weights quantised by other programs are not read; GGUF files "
                "are, and --base-weights nf4 quantises plain ones");
  }
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (fields.integer(key).value_or(0) > 0) {
      unsupported(fields, "{}: mixtures of experts are not understood", key);
    }
  }
  if (fields.number("partial_rotary_factor").value_or(1) != 1) {
    unsupported(fields, "partial_rotary_factor: heads rotated in part are not understood");
  }
}

// As in transformers: Mistral has a window unless `sliding_window` is null; Qwen has one in layers
// from `max_window_layers` on where `use_sliding_window` says so, or where `layer_types` does.
void refuse_sliding_windows(const JsonFields& fields,
                            const json& config,
                            const std::string& architecture,
                            std::int64_t layers) {
  if (architecture == "mistral") {
    if (fields.find("sliding_window") != nullptr) {
      unsupported(fields,
                  "sliding_window {}: sliding windows are not understood",
                  fields.required_integer("sliding_window"));
    }
    if (!config.contains("sliding_window")) {
      unsupported(fields,
                  "sliding_window is absent, which means 4096 in a Mistral model: sliding windows "
                  "are not understood (null means none)");
    }
  }
  const json* types = fields.find("layer_types");
  if (types != nullptr) {
    for (const json& type : *types) {
      if (!type.is_string() || type.get_ref<const std::string&>() != "full_attention") {
        unsupported(fields,
                    "layer_types holds {}; 'full_attention' is understood",
                    in_quotes(type.is_string() ? type.get<std::string>() : type.type_name()));
      }
    }
  }
  const bool in_use = types == nullptr && fields.boolean("use_sliding_window").value_or(false) &&
                      !(config.contains("sliding_window") && config["sliding_window"].is_null()) &&
                      fields.integer("max_window_layers").value_or(28) < layers;
  if (in_use) {
    unsupported(fields, "use_sliding_window: sliding windows are not understood");
  }
}

constexpr std::array<std::string_view, 15> kRopeKeys{"rope_type",
                                                     "type",
                                                     "rope_theta",
                                                     "factor",
                                                     "original_max_position_embeddings",
                                                     "low_freq_factor",
                                                     "high_freq_factor",
                                                     "beta_fast",
                                                     "beta_slow",
                                                     "mscale",
                                                     "mscale_all_dim",
                                                     "attention_factor",
                                                     "truncate",
                                                     "partial_rotary_factor",
                                                     "finetuned"};

RopeScaling read_scaling(const JsonFields& rope) {
  const std::string type =
      rope.string("rope_type").value_or(rope.string("type").value_or("default"));
  if (type == "default") {
    return RopeScaling::kNone;
  }
  if (type == "linear") {
    return RopeScaling::kLinear;
  }
  if (type == "llama3") {
    return RopeScaling::kLlama3;
  }
  if (type == "yarn") {
    return RopeScaling::kYarn;
  }
  unsupported(rope,
              "RoPE type {} is not understood; default, linear, llama3 and yarn are",
              in_quotes(type));
}

// transformers: 0.1 m ln(factor) + 1.
double mscale_of(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

void read_yarn(RopeConfig& config, const JsonFields& rope, std::int64_t max_context) {
  // Without a factor, transformers takes the ratio of the two contexts.
  config.factor = rope.number("factor").value_or(static_cast<double>(max_context) /
                                                 std::max(config.original_context, 1.0));
  // 0 means absent there.
  const auto nonzero = [&](const char* key, double otherwise) {
    const double value = rope.number(key).value_or(0);
    return value == 0 ? otherwise : value;
  };
  config.beta_fast = nonzero("beta_fast", 32);
  config.beta_slow = nonzero("beta_slow", 1);
  config.truncate = rope.boolean("truncate").value_or(true);
  const double mscale = nonzero("mscale", 0);
  const double mscale_all = nonzero("mscale_all_dim", 0);
  if (const auto factor = rope.number("attention_factor")) {
    if (!(*factor > 0)) {
      fail(ErrorCode::kBadInput,
           "model",
           "{}: attention_factor is {}; it must be positive",
           rope.name(),
           *factor);
    }
    config.attention_factor = *factor;
  } else if (mscale != 0 && mscale_all != 0) {
    config.attention_factor =
        mscale_of(config.factor, mscale) / mscale_of(config.factor, mscale_all);
  }
}

RopeConfig read_rope(const JsonFields& fields, std::int64_t max_context) {
  RopeConfig config;
  config.theta = fields.number("rope_theta").value_or(10000.0);
  // transformers lets a rope_scaling that is given, and not empty, stand for rope_parameters.
  const char* key = "rope_scaling";
  const json* value = fields.find(key);
  if (value == nullptr || value->empty()) {
    key = "rope_parameters";
    value = fields.find(key);
  }
  if (value == nullptr) {
    return config;
  }
  const JsonFields rope(*value, fmt::format("{}: {}", fields.name(), key));
  for (const auto& [name, unused] : value->items()) {
    if (std::find(kRopeKeys.begin(), kRopeKeys.end(), name) == kRopeKeys.end()) {
      unsupported(rope, "{} is not understood", in_quotes(name));
    }
  }
  if (rope.number("partial_rotary_factor").value_or(1) != 1) {
    unsupported(rope, "partial_rotary_factor: heads rotated in part are not understood");
  }
  config.theta = rope.number("rope_theta").value_or(config.theta);
  config.scaling = read_scaling(rope);
  // A field of the configuration itself goes before the one in the object.
  config.original_context = fields.number("original_max_position_embeddings")
                                .value_or(rope.number("original_max_position_embeddings")
                                              .value_or(static_cast<double>(max_context)));
  if (config.scaling == RopeScaling::kYarn) {
    read_yarn(config, rope, max_context);
  } else if (config.scaling != RopeScaling::kNone) {
    config.factor = rope.required_number("factor");
  }
  if (config.scaling == RopeScaling::kLlama3) {
    config.low_freq_factor = rope.required_number("low_freq_factor");
    config.high_freq_factor = rope.required_number("high_freq_factor");
  }
  return config;
}

void read_heads(ModelConfig& config, const JsonFields& fields) {
  config.Hq = fields.required_integer("num_attention_heads");
  // The other architectures' default is a number of its own, which no published model relies on.
  config.Hkv = config.architecture == "llama"
                   ? fields.integer("num_key_value_heads").value_or(config.Hq)
                   : fields.required_integer("num_key_value_heads");
  const std::optional<std::int64_t> D = fields.integer("head_dim");
  if (D || config.architecture == "qwen3") {
    config.D = D.value_or(128);
    return;
  }
  if (config.Hq < 1 || config.C % config.Hq != 0) {
    fail(ErrorCode::kBadInput,
         "model",
         "{}: hidden_size {} is no multiple of num_attention_heads {}, and head_dim is absent",
         fields.name(),
         config.C,
         config.Hq);
  }
  config.D = config.C / config.Hq;
}

void read_biases(ModelConfig& config, const JsonFields& fields) {
  const bool attention = fields.boolean("attention_bias").value_or(false);
  const bool mlp = fields.boolean("mlp_bias").value_or(false);
  const bool llama = config.architecture == "llama";
  const bool qwen3 = config.architecture == "qwen3";
  if ((attention && !llama && !qwen3) || (mlp && !llama)) {
    unsupported(fields,
                "{} is not understood in a {} model",
                attention ? "attention_bias" : "mlp_bias",
                config.architecture);
  }
  config.qkv_bias = attention || config.architecture == "qwen2";
  config.o_bias = attention;
  config.mlp_bias = mlp;
  config.qk_norm = qwen3;
}

}  // namespace

ModelConfig parse_hf_config(const json& value, const std::string& name) {
  const JsonFields fields(value, name);
  ModelConfig config;
  config.architecture = read_architecture(fields);
  refuse_foreign_features(fields);
  config.L = fields.required_integer("num_hidden_layers");
  config.C = fields.required_integer("hidden_size");
  config.F = fields.required_integer("intermediate_size");
  config.V = fields.required_integer("vocab_size");
  config.max_context = fields.integer("max_position_embeddings").value_or(0);
  config.norm_eps = static_cast<float>(fields.number("rms_norm_eps").value_or(1e-6));
  config.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  refuse_sliding_windows(fields, value, config.architecture, config.L);
  read_heads(config, fields);
  read_biases(config, fields);
  config.rope = read_rope(fields, config.max_context);
  check(config, name);
  return config;
}

}  // namespace longtune
