#include "model/gguf_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "model/file_source.h"
#include "model/tensor_spec.h"

namespace longtune {
namespace {

struct Renaming {
  std::string_view hugging_face;
  std::string_view gguf;
};

constexpr std::array<Renaming, 3> kWhole{{{"model.embed_tokens.weight", "token_embd.weight"},
                                          {"model.norm.weight", "output_norm.weight"},
                                          {"lm_head.weight", "output.weight"}}};

constexpr std::array<Renaming, 11> kInLayer{{{"input_layernorm", "attn_norm"},
                                             {"post_attention_layernorm", "ffn_norm"},
                                             {"self_attn.q_proj", "attn_q"},
                                             {"self_attn.k_proj", "attn_k"},
                                             {"self_attn.v_proj", "attn_v"},
                                             {"self_attn.o_proj", "attn_output"},
                                             {"self_attn.q_norm", "attn_q_norm"},
                                             {"self_attn.k_norm", "attn_k_norm"},
                                             {"mlp.gate_proj", "ffn_gate"},
                                             {"mlp.up_proj", "ffn_up"},
                                             {"mlp.down_proj", "ffn_down"}}};

// "model.layers.7.self_attn.q_proj.weight" -> "blk.7.attn_q.weight"; names are needed_tensors'.
std::string gguf_name(const std::string& name) {
  for (const Renaming& known : kWhole) {
    if (name == known.hugging_face) {
      return std::string(known.gguf);
    }
  }
  constexpr std::string_view kPrefix = "model.layers.";
  const std::size_t dot = name.find('.', kPrefix.size());
  const std::size_t last = name.rfind('.');
  const std::string_view layer =
      std::string_view(name).substr(kPrefix.size(), dot - kPrefix.size());
  const std::string_view module = std::string_view(name).substr(dot + 1, last - dot - 1);
  for (const Renaming& known : kInLayer) {
    if (module == known.hugging_face) {
      return fmt::format("blk.{}.{}{}", layer, known.gguf, name.substr(last));
    }
  }
  fail(ErrorCode::kInternal, "model", "tensor {} has no name in GGUF", in_quotes(name));
}

std::optional<WeightFormat> format_of(std::uint32_t type) {
  switch (type) {
    case 0:
      return WeightFormat::kF32;
    case 1:
      return WeightFormat::kF16;
    case 2:
      return WeightFormat::kQ4_0;
    case 3:
      return WeightFormat::kQ4_1;
    case 8:
      return WeightFormat::kQ8_0;
    case 30:
      return WeightFormat::kBf16;
    default:
      return std::nullopt;
  }
}

class GgufSource final : public FileSource {
 public:
  explicit GgufSource(const std::filesystem::path& path) {
    files_.push_back(std::make_unique<File>(path));
    const File& file = *files_.back();
    const Gguf gguf = Gguf::parse(file);
    std::map<std::string_view, const GgufTensor*> unused;
    for (const GgufTensor& tensor : gguf.tensors()) {
      unused.emplace(tensor.name, &tensor);
    }
    config_ = parse_gguf_config(gguf, file);
    for (const TensorSpec& spec : needed_tensors(config_)) {
      const std::string name = gguf_name(spec.name);
      const auto found = unused.find(name);
      if (found == unused.end()) {
        fail(ErrorCode::kBadInput,
             "model",
             "{}: tensor {} is missing",
             file.name(),
             in_quotes(name));
      }
      admit_tensor(spec, *found->second);
      unused.erase(found);
    }
    for (const auto& [name, unknown] : unused) {
      if (name != "rope_freqs.weight") {
        fail(ErrorCode::kUnsupported,
             "model",
             "{}: tensor {} is not understood in a {} model",
             file.name(),
             in_quotes(name),
             config_.architecture);
      }
    }
  }

  [[nodiscard]] const char* kind() const override { return "gguf"; }

 private:
  void admit_tensor(const TensorSpec& spec, const GgufTensor& tensor) {
    const File& file = *files_.back();
    const std::optional<WeightFormat> format = format_of(tensor.type);
    if (!format) {
      fail(ErrorCode::kUnsupported,
           "model",
           "{}: tensor {} has type {}; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read",
           file.name(),
           in_quotes(tensor.name),
           gguf_tensor_type_name(tensor.type));
    }
    std::vector<std::int64_t> shape(tensor.dims.rbegin(), tensor.dims.rend());
    // llama.cpp's converter pairs neighbouring rows for RoPE in this architecture only.
    const bool interleaved =
        config_.architecture == "llama" && (spec.name.find(".q_proj.") != std::string::npos ||
                                            spec.name.find(".k_proj.") != std::string::npos);
    add(admit(spec, {file.name(), tensor.name, std::move(shape), *format}),
        {&file, tensor.offset, interleaved});
  }
};

}  // namespace

std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path) {
  return std::make_unique<GgufSource>(path);
}

}  // namespace longtune
