// Tiny models against PyTorch, transformers and PEFT: scripts/goldens/make_models.py made the
// files.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "infer/session.h"
#include "model/decoder.h"
#include "model/source.h"
#include "support/golden.h"

namespace longtune {
namespace {

using test::GoldenFile;
using test::relative_error;

constexpr ModelOptions kExact{.activations = DType::kF32, .kv = DType::kF32};

struct ModelCase {
  std::string model;
  std::string weights;  ///< below the model's folder: "" or "model.gguf"
  std::string adapter = "adapter";
  std::string golden = "golden.safetensors";
  std::int64_t segment = 0;  ///< 0: all tokens at once
};

void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.model << "/" << c.weights << " " << c.adapter << " " << c.golden;
}

class ModelGolden : public testing::TestWithParam<ModelCase> {
 protected:
  ModelGolden()
      : folder_(test::goldens() / "models" / GetParam().model),
        golden_(folder_ / GetParam().golden),
        source_(open_model(GetParam().weights.empty() ? folder_ : folder_ / GetParam().weights)),
        tokens_(golden_.ints("tokens")) {}

  // Logits at the golden's positions, read piece by piece up to each.
  std::vector<float> logits(const std::optional<std::filesystem::path>& adapter) {
    Session session(*source_,
                    {.model = kExact,
                     .context = static_cast<std::int64_t>(tokens_.size()),
                     .block = 64,
                     .adapter = adapter},
                    {},
                    {});
    std::vector<float> all;
    std::int64_t begin = 0;
    for (const std::int32_t position : golden_.ints("positions")) {
      const auto part = std::span<const std::int32_t>(tokens_).subspan(begin, position + 1 - begin);
      const std::vector<float> row = session.read(part);
      all.insert(all.end(), row.begin(), row.end());
      begin = position + 1;
    }
    return all;
  }

  std::filesystem::path folder_;
  GoldenFile golden_;
  std::unique_ptr<ModelSource> source_;
  std::vector<std::int32_t> tokens_;
};

TEST_P(ModelGolden, LogitsEqualThoseOfTransformersAndPeft) {
  if (golden_.header().find("logits") == nullptr) {
    GTEST_SKIP() << "a golden of gradients alone";
  }
  EXPECT_LE(relative_error(logits(std::nullopt), golden_.floats("base_logits")), 1e-4);
  EXPECT_LE(relative_error(logits(folder_ / GetParam().adapter), golden_.floats("logits")), 1e-4);
}

TEST_P(ModelGolden, LossAndAdapterGradientsEqualThoseOfPytorch) {
  const auto T = static_cast<std::int64_t>(tokens_.size());
  const std::int64_t segment = GetParam().segment == 0 ? T : GetParam().segment;
  const DecoderOptions options{
      .model = kExact,
      .use = ModelUse::kTraining,
      .context = T,
      .cell_tokens = segment,
      .kv_keep = segment == T ? KvKeep::kOneLayer : KvKeep::kAllLayers,
      .lora = read_lora_config(folder_ / GetParam().adapter),
  };
  Plan plan = plan_decoder(*source_, options);
  Arena arena(plan.need(Tier::kDevice), Arena::Options::from_environment());
  Decoder decoder(*source_, options, arena, plan);
  decoder.load(*source_, {});
  load_adapter(*decoder.adapter(), folder_ / GetParam().adapter);
  fill_zero(decoder.adapter()->gradients());

  const std::vector<std::int32_t> targets = golden_.ints("targets");
  const auto count =
      static_cast<float>(std::ranges::count_if(targets, [](auto t) { return t >= 0; }));
  double loss = 0;
  for (std::int64_t first = 0; first < T; first += segment) {
    const std::int64_t size = std::min(segment, T - first);
    decoder.forward(std::span<const std::int32_t>(tokens_).subspan(first, size), first);
    for (const float nats : decoder.losses_and_gradients(
             std::span<const std::int32_t>(targets).subspan(first, size), 1 / count)) {
      loss += nats;
    }
  }
  EXPECT_NEAR(loss / count, golden_.floats("loss")[0], 1e-5);

  int compared = 0;
  const auto compare = [&](const std::string& name, const TensorView& gradient) {
    std::vector<float> values(gradient.elements());
    copy_to_host(values.data(), gradient, gradient.bytes());
    EXPECT_LE(relative_error(values, golden_.floats("grad." + name)), 1e-3) << name;
    ++compared;
  };
  for (std::int64_t layer = 0; layer < decoder.config().L; ++layer) {
    for (int i = 0; i < kLinearKinds; ++i) {
      const auto kind = static_cast<LinearKind>(i);
      if (options.lora->has(kind)) {
        const Adapter::Pair& pair = decoder.adapter()->pair(layer, kind);
        const std::string name =
            fmt::format("base_model.model.model.layers.{}.{}", layer, module_of(kind));
        compare(name + ".lora_A.weight", pair.da);
        compare(name + ".lora_B.weight", pair.db);
      }
    }
  }
  EXPECT_EQ(compared, std::ranges::count_if(golden_.header().tensors(), [](const auto& tensor) {
              return tensor.name.starts_with("grad.");
            }));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    ModelGolden,
    testing::Values(ModelCase{"llama", ""},
                    ModelCase{"llama", "model.gguf"},
                    ModelCase{
                        .model = "llama", .golden = "golden_segment64.safetensors", .segment = 64},
                    ModelCase{"llama_linear", ""},
                    ModelCase{"llama_llama3", ""},
                    ModelCase{"llama_tied", ""},
                    ModelCase{"llama_tied", "model.gguf"},
                    ModelCase{"llama_tied", "", "adapter_rslora", "golden_rslora.safetensors"},
                    ModelCase{"llama_yarn", ""},
                    ModelCase{"mistral", ""},
                    ModelCase{"qwen2", ""},
                    ModelCase{"qwen2", "model.gguf"},
                    ModelCase{"qwen3", ""},
                    ModelCase{"qwen3", "model.gguf"}));

}  // namespace
}  // namespace longtune
