#include "model/tensor_spec.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace longtune {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class SpecList {
 public:
  std::vector<TensorSpec> specs;

  void vector(const std::string& name, std::int64_t K) { specs.push_back({name, 1, K, true}); }

  void linear(const std::string& module, std::int64_t N, std::int64_t K, bool bias) {
    specs.push_back({module + ".weight", N, K, false});
    if (bias) {
      vector(module + ".bias", N);
    }
  }
};

void add_layer(SpecList& list, const ModelConfig& config, std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  const std::int64_t query = config.Hq * config.D;
  const std::int64_t key = config.Hkv * config.D;
  list.vector(prefix + "input_layernorm.weight", config.C);
  list.vector(prefix + "post_attention_layernorm.weight", config.C);
  list.linear(attention + "q_proj", query, config.C, config.qkv_bias);
  list.linear(attention + "k_proj", key, config.C, config.qkv_bias);
  list.linear(attention + "v_proj", key, config.C, config.qkv_bias);
  list.linear(attention + "o_proj", config.C, query, config.o_bias);
  list.linear(mlp + "gate_proj", config.F, config.C, config.mlp_bias);
  list.linear(mlp + "up_proj", config.F, config.C, config.mlp_bias);
  list.linear(mlp + "down_proj", config.C, config.F, config.mlp_bias);
  if (config.qk_norm) {
    list.vector(attention + "q_norm.weight", config.D);
    list.vector(attention + "k_norm.weight", config.D);
  }
}

}  // namespace

std::vector<TensorSpec> needed_tensors(const ModelConfig& config) {
  SpecList list;
  list.specs.push_back({kEmbedding, config.V, config.C, false});
  list.vector("model.norm.weight", config.C);
  if (!config.tied_embeddings) {
    list.specs.push_back({kHead, config.V, config.C, false});
  }
  for (std::int64_t layer = 0; layer < config.L; ++layer) {
    add_layer(list, config, layer);
  }
  std::sort(list.specs.begin(), list.specs.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return a.name < b.name;
  });
  return std::move(list.specs);
}

SourceTensor admit(const TensorSpec& spec, const FoundTensor& found) {
  const std::vector<std::int64_t> wanted =
      spec.is_vector ? std::vector{spec.K} : std::vector{spec.N, spec.K};
  const bool by_token = spec.name == kEmbedding || spec.name == kHead;
  if (by_token && found.shape.size() == 2 && found.shape[0] != spec.N && found.shape[1] == spec.K) {
    fail(ErrorCode::kBadInput,
         "model",
         "{}: vocabulary mismatch: tensor {} has {} rows, but the configuration names {} tokens",
         found.file,
         in_quotes(found.name),
         found.shape[0],
         spec.N);
  }
  if (found.shape != wanted) {
    fail(ErrorCode::kBadInput,
         "model",
         "{}: tensor {} has shape ({}), but the configuration demands ({})",
         found.file,
         in_quotes(found.name),
         fmt::join(found.shape, ", "),
         fmt::join(wanted, ", "));
  }
  if (spec.is_vector && block_values(found.format) != 1) {
    fail(ErrorCode::kUnsupported,
         "model",
         "{}: tensor {} is a vector in {} blocks",
         found.file,
         in_quotes(found.name),
         name_of(found.format));
  }
  return {spec.name, found.format, spec.N, spec.K};
}

}  // namespace longtune
