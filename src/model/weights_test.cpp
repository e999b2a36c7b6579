#include "model/weights.h"

#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "model/tensor_spec.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

// A Llama whose matrices can all be NF4; every value is 0 but those of one tensor.
std::unique_ptr<ModelSource> model_with(const std::string& name, const std::vector<float>& begin) {
  const TemporaryDirectory directory;  // the files stay open when their names are gone
  directory.write("config.json",
                  R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64,
                      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                      "num_key_value_heads": 1, "vocab_size": 5, "tie_word_embeddings": true})");
  ModelConfig config;
  config.L = 1;
  config.C = 64;
  config.F = 64;
  config.Hq = 2;
  config.Hkv = 1;
  config.D = 32;
  config.V = 5;
  config.tied_embeddings = true;
  std::vector<SafetensorsTensor> header;
  for (const TensorSpec& spec : needed_tensors(config)) {
    header.push_back({.name = spec.name,
                      .dtype = "F32",
                      .shape = spec.is_vector ? std::vector{spec.K} : std::vector{spec.N, spec.K}});
  }
  SafetensorsWriter writer(directory.path() / "model.safetensors", header, {});
  for (const SafetensorsTensor& tensor : header) {
    std::vector<float> values(tensor.shape.front() *
                              (tensor.shape.size() == 2 ? tensor.shape[1] : 1));
    if (tensor.name == name) {
      std::ranges::copy(begin, values.begin());
    }
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
  return open_model(directory.path());
}

void load(const ModelSource& source) {
  Plan plan;
  Arena planning = Arena::planning();
  const ModelWeights planned(source, BaseWeights::kNf4, planning, plan);
  Arena arena(planning.high_water(), Arena::Options::from_environment());
  ModelWeights weights(source, BaseWeights::kNf4, arena, plan);
  weights.load(source, nullptr);
}

constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";

TEST(ModelWeights, NamesFileAndTensorThatCannotBeQuantised) {
  load(*model_with(kUp, {1}));
  std::vector<float> values(3 * 64, 0.0F);
  values.push_back(INFINITY);
  const auto refuses = [](const std::vector<float>& begin, std::string_view part) {
    const auto source = model_with(kUp, begin);
    expect_error([&] { load(*source); }, ErrorCode::kBadInput, part);
    expect_error([&] { load(*source); }, ErrorCode::kBadInput, "model.safetensors: tensor");
  };
  refuses(values,
          "tensor model.layers.0.mlp.up_proj.weight: [nf4] row 3 holds a value that is not finite");
  refuses(std::vector<float>(2 * 64, 3e38F),
          "tensor model.layers.0.mlp.up_proj.weight: [nf4] values are so large");
}

}  // namespace
}  // namespace longtune
