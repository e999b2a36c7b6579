#include "model/shape_source.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "model/tensor_spec.h"

namespace longtune {
namespace {

struct Published {
  const char* name;
  ModelConfig config;
};

// From the models' config.json.
std::array<Published, 4> published() {
  ModelConfig qwen{.architecture = "qwen3",
                   .L = 36,
                   .C = 4096,
                   .F = 12288,
                   .Hq = 32,
                   .Hkv = 8,
                   .D = 128,
                   .V = 151936,
                   .norm_eps = 1e-6F,
                   .rope = {.theta = 1e6},
                   .max_context = 40960,
                   .qk_norm = true};
  ModelConfig qwen4 = qwen;
  qwen4.C = 2560;
  qwen4.F = 9728;
  qwen4.tied_embeddings = true;
  ModelConfig small = qwen4;
  small.L = 28;
  small.C = 1024;
  small.F = 3072;
  small.Hq = 16;
  ModelConfig llama = qwen;
  llama.architecture = "llama";
  llama.L = 32;
  llama.F = 14336;
  llama.V = 128256;
  llama.norm_eps = 1e-5F;
  llama.rope = {.theta = 500000,
                .scaling = RopeScaling::kLlama3,
                .factor = 8,
                .original_context = 8192,
                .low_freq_factor = 1,
                .high_freq_factor = 4};
  llama.max_context = 131072;
  llama.qk_norm = false;
  return {{{"qwen3-0.6b", small}, {"qwen3-4b", qwen4}, {"qwen3-8b", qwen}, {"llama3.1-8b", llama}}};
}

class ShapeSource : public ModelSource {
 public:
  explicit ShapeSource(const Published& shape, std::int64_t layers)
      : config_(shape.config), name_(shape.name) {
    config_.L = layers;
    for (const TensorSpec& spec : needed_tensors(config_)) {
      const bool is_table = spec.name == "model.embed_tokens.weight" && !config_.tied_embeddings;
      const WeightFormat format = spec.is_vector ? WeightFormat::kF32
                                  : is_table     ? WeightFormat::kBf16
                                                 : WeightFormat::kNf4;
      tensors_.push_back({.name = spec.name, .format = format, .N = spec.N, .K = spec.K});
    }
  }

  [[nodiscard]] const ModelConfig& config() const override { return config_; }

  [[nodiscard]] const char* kind() const override { return "shape"; }

  [[nodiscard]] const std::vector<SourceTensor>& tensors() const override { return tensors_; }

  [[nodiscard]] const std::string& file_of(const std::string& /*name*/) const override {
    return name_;
  }

  [[nodiscard]] bool has_values() const override { return false; }

  void read_rows(const std::string& name,
                 std::int64_t /*first*/,
                 std::int64_t /*count*/,
                 std::span<std::byte> /*target*/) const override {
    fail(ErrorCode::kInternal, "shape", "{} has no values to read", name);
  }

 private:
  ModelConfig config_;
  std::string name_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Published& shape : published()) {
    names.emplace_back(shape.name);
  }
  return names;
}

std::unique_ptr<ModelSource> open_shape(std::string_view name, std::int64_t layers) {
  for (const Published& shape : published()) {
    if (name != shape.name) {
      continue;
    }
    if (layers < 0 || layers > shape.config.L) {
      fail(ErrorCode::kInvalidArgument,
           "shape",
           "--layers {} is not in 1 .. {}, the layers of {}",
           layers,
           shape.config.L,
           name);
    }
    return std::make_unique<ShapeSource>(shape, layers == 0 ? shape.config.L : layers);
  }
  fail(ErrorCode::kInvalidArgument,
       "shape",
       "--shape '{}' is none of {}",
       name,
       fmt::join(shape_names(), ", "));
}

}  // namespace longtune
