#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "model/gguf_source.h"

namespace longtune {
namespace {

// Keys after "ARCHITECTURE." that are read here. Any other may change what the model computes.
constexpr std::array<std::string_view, 24> kUnderstood{"block_count",
                                                       "context_length",
                                                       "embedding_length",
                                                       "feed_forward_length",
                                                       "attention.head_count",
                                                       "attention.head_count_kv",
                                                       "attention.key_length",
                                                       "attention.value_length",
                                                       "attention.layer_norm_rms_epsilon",
                                                       "attention.causal",
                                                       "attention.sliding_window",
                                                       "rope.freq_base",
                                                       "rope.dimension_count",
                                                       "rope.scaling.type",
                                                       "rope.scaling.factor",
                                                       "rope.scaling.original_context_length",
                                                       "rope.scaling.finetuned",
                                                       "rope.scaling.yarn_beta_fast",
                                                       "rope.scaling.yarn_beta_slow",
                                                       "rope.scaling.attn_factor",
                                                       "rope.scale_linear",
                                                       "vocab_size",
                                                       "expert_count",
                                                       "expert_used_count"};

class ConfigReader {
 public:
  ConfigReader(const Gguf& gguf, const Reader& reader) : gguf_(gguf), reader_(reader) {}

  ModelConfig read() {
    read_architecture();
    refuse_foreign_features();
    config_.L = required("block_count");
    config_.C = required("embedding_length");
    config_.F = required("feed_forward_length");
    config_.max_context = gguf_.integer(key("context_length")).value_or(0);
    config_.norm_eps = static_cast<float>(required_number("attention.layer_norm_rms_epsilon"));
    read_heads();
    read_vocabulary();
    config_.tied_embeddings = find_tensor("output.weight") == nullptr;
    // No key tells of biases; the tensors do.
    config_.qkv_bias = find_tensor("blk.0.attn_q.bias") != nullptr;
    config_.o_bias = find_tensor("blk.0.attn_output.bias") != nullptr;
    config_.mlp_bias = find_tensor("blk.0.ffn_gate.bias") != nullptr;
    config_.qk_norm = config_.architecture == "qwen3";
    read_rope();
    check(config_, gguf_.file());
    return config_;
  }

 private:
  template <class... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadInput,
         "model",
         "{}: {}",
         gguf_.file(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUnsupported,
         "model",
         "{}: {}",
         gguf_.file(),
         fmt::format(format, std::forward<Args>(args)...));
  }

  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("{}.{}", config_.architecture, name);
  }

  [[nodiscard]] std::int64_t required(const char* name) const {
    const auto value = gguf_.integer(key(name));
    if (!value) {
      bad("lacks key {}", in_quotes(key(name)));
    }
    return *value;
  }

  [[nodiscard]] double required_number(const char* name) const {
    const auto value = gguf_.number(key(name));
    if (!value) {
      bad("lacks key {}", in_quotes(key(name)));
    }
    return *value;
  }

  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const {
    const auto& all = gguf_.tensors();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const GgufTensor& tensor) { return tensor.name == name; });
    return found == all.end() ? nullptr : &*found;
  }

  void read_architecture() {
    const auto name = gguf_.string("general.architecture");
    if (!name) {
      bad("lacks key 'general.architecture'");
    }
    if (*name != "llama" && *name != "qwen2" && *name != "qwen3") {
      unsupported("architecture {} is not understood; llama (Mistral's too), qwen2 and qwen3 are",
                  in_quotes(*name));
    }
    config_.architecture = *name;
    if (const auto type = gguf_.string("general.type"); type && *type != "model") {
      unsupported("general.type is {}; 'model' is understood", in_quotes(*type));
    }
    if (gguf_.integer("split.count").value_or(0) > 1) {
      unsupported("split.count: a model split over several GGUF files is not understood");
    }
  }

  void refuse_foreign_features() const {
    const std::string prefix = config_.architecture + ".";
    for (const auto& [name, unused] : gguf_.metadata()) {
      if (name.starts_with(prefix) &&
          std::find(kUnderstood.begin(), kUnderstood.end(), name.substr(prefix.size())) ==
              kUnderstood.end()) {
        unsupported("key {} is not understood", in_quotes(name));
      }
    }
    if (gguf_.integer(key("expert_count")).value_or(0) > 0) {
      unsupported("{}: mixtures of experts are not understood", key("expert_count"));
    }
    if (gguf_.integer(key("attention.sliding_window")).value_or(0) > 0) {
      unsupported("{}: sliding windows are not understood", key("attention.sliding_window"));
    }
    if (!gguf_.boolean(key("attention.causal")).value_or(true)) {
      unsupported("{}: attention that is not causal is not understood", key("attention.causal"));
    }
  }

  void read_heads() {
    for (const char* name :
         {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
      const GgufValue* value = gguf_.find(key(name));
      if (value != nullptr && value->is_array()) {
        unsupported("{} differs by layer, which is not understood", key(name));
      }
    }
    config_.Hq = required("attention.head_count");
    config_.Hkv = gguf_.integer(key("attention.head_count_kv")).value_or(config_.Hq);
    const auto D = gguf_.integer(key("attention.key_length"));
    if (!D && (config_.Hq < 1 || config_.C % config_.Hq != 0)) {
      bad("{} is no multiple of {}", key("embedding_length"), key("attention.head_count"));
    }
    config_.D = D ? *D : config_.C / config_.Hq;
    if (gguf_.integer(key("attention.value_length")).value_or(config_.D) != config_.D) {
      unsupported("{}: values of another width than keys are not understood",
                  key("attention.value_length"));
    }
    if (gguf_.integer(key("rope.dimension_count")).value_or(config_.D) != config_.D) {
      unsupported("{}: heads rotated in part are not understood", key("rope.dimension_count"));
    }
  }

  // Rows of the embedding; both places that may name a vocabulary must agree with them.
  void read_vocabulary() {
    const GgufTensor* table = find_tensor("token_embd.weight");
    if (table == nullptr || table->dims.size() != 2) {
      bad("tensor 'token_embd.weight' is missing, or no matrix");
    }
    config_.V = table->dims[1];
    const auto check = [&](const std::string& name, std::int64_t tokens) {
      if (tokens != config_.V) {
        bad("vocabulary mismatch: tensor 'token_embd.weight' has {} rows, but {} names {} tokens",
            config_.V,
            name,
            tokens);
      }
    };
    check(key("vocab_size"), gguf_.integer(key("vocab_size")).value_or(config_.V));
    if (const GgufValue* tokens = gguf_.strings("tokenizer.ggml.tokens")) {
      check("tokenizer.ggml.tokens", tokens->size());
    }
  }

  void read_rope() {
    RopeConfig& rope = config_.rope;
    rope.theta = gguf_.number(key("rope.freq_base")).value_or(10000.0);
    const double old_factor = gguf_.number(key("rope.scale_linear")).value_or(1);
    const std::string_view otherwise = old_factor != 1 ? "linear" : "none";
    const std::string_view type = gguf_.string(key("rope.scaling.type")).value_or(otherwise);
    rope.factor = gguf_.number(key("rope.scaling.factor")).value_or(old_factor);
    if (type == "linear") {
      rope.scaling = RopeScaling::kLinear;
    } else if (type == "yarn") {
      rope.scaling = RopeScaling::kYarn;
      const auto context = static_cast<double>(config_.max_context);
      rope.original_context =
          gguf_.number(key("rope.scaling.original_context_length")).value_or(context);
      rope.beta_fast = gguf_.number(key("rope.scaling.yarn_beta_fast")).value_or(32);
      rope.beta_slow = gguf_.number(key("rope.scaling.yarn_beta_slow")).value_or(1);
    } else if (type != "none") {
      unsupported("{} {} is not understood; none, linear and yarn are",
                  key("rope.scaling.type"),
                  in_quotes(type));
    }
    if (gguf_.number(key("rope.scaling.attn_factor")).value_or(1) != 1) {
      unsupported("{} is not understood", key("rope.scaling.attn_factor"));
    }
    read_divisors();
  }

  // Llama 3.1's scaling, which GGUF files hold as one divisor a frequency.
  void read_divisors() {
    const GgufTensor* tensor = find_tensor("rope_freqs.weight");
    if (tensor == nullptr) {
      return;
    }
    const bool plain = tensor->type == 0 && tensor->dims.size() == 1;
    if (!plain || tensor->dims[0] != config_.D / 2) {
      bad("tensor 'rope_freqs.weight' is no vector of {} values of type F32", config_.D / 2);
    }
    if (config_.rope.scaling != RopeScaling::kNone) {
      unsupported("tensor 'rope_freqs.weight' beside {} is not understood",
                  key("rope.scaling.type"));
    }
    config_.rope.divisors.resize(static_cast<std::size_t>(config_.D / 2));
    reader_.read_at(tensor->offset, std::as_writable_bytes(std::span(config_.rope.divisors)));
  }

  const Gguf& gguf_;
  const Reader& reader_;
  ModelConfig config_;
};

}  // namespace

ModelConfig parse_gguf_config(const Gguf& gguf, const Reader& reader) {
  return ConfigReader(gguf, reader).read();
}

}  // namespace longtune
