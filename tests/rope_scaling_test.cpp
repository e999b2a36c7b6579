// --rope-scaling through the whole model: a file that names no scaling, read with one that is asked
// for, gives the logits that transformers computes where the file names it.

#include <gtest/gtest.h>

#include "infer/session.h"
#include "io/json.h"
#include "support/golden.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

struct ScaledModel {
  std::string model;
  RopeOverride rope;  ///< what its file says
};

void PrintTo(const ScaledModel& c, std::ostream* out) {
  *out << c.model << " " << text_of(c.rope);
}

class RopeScalingOption : public testing::TestWithParam<ScaledModel> {
 protected:
  RopeScalingOption()
      : folder_(test::goldens() / "models" / GetParam().model),
        golden_(folder_ / "golden.safetensors") {}

  // The golden's model without its scaling, made for its original context.
  [[nodiscard]] std::filesystem::path plain_model() const {
    nlohmann::json config = read_json(folder_ / "config.json");
    config.erase("rope_scaling");
    config.erase("rope_parameters");
    config["rope_theta"] = 10000.0;
    config["max_position_embeddings"] = 32;
    std::filesystem::copy(folder_ / "model.safetensors", scratch_.path() / "model.safetensors");
    return scratch_.write("config.json", config.dump()).parent_path();
  }

  // Against the base model's logits at the golden's positions.
  [[nodiscard]] double error_with(const std::filesystem::path& model,
                                  const RopeChoice& rope) const {
    const std::vector<std::int32_t> tokens = golden_.ints("tokens");
    Session session(*open_model(model),
                    {.model = {.activations = DType::kF32, .kv = DType::kF32, .rope = rope},
                     .context = static_cast<std::int64_t>(tokens.size()),
                     .block = 64},
                    {},
                    {});
    std::vector<float> all;
    std::int64_t begin = 0;
    for (const std::int32_t position : golden_.ints("positions")) {
      const std::vector<float> row =
          session.read(std::span(tokens).subspan(begin, position + 1 - begin));
      all.insert(all.end(), row.begin(), row.end());
      begin = position + 1;
    }
    return test::relative_error(all, golden_.floats("base_logits"));
  }

  TemporaryDirectory scratch_;
  std::filesystem::path folder_;
  test::GoldenFile golden_;
};

TEST_P(RopeScalingOption, IsThatOfTransformers) {
  const std::filesystem::path plain = plain_model();
  EXPECT_LE(error_with(plain, GetParam().rope), 1e-4);
  EXPECT_GE(error_with(plain, std::nullopt), 1e-2);
  EXPECT_GE(error_with(folder_, RopeOverride{}), 1e-2);
  EXPECT_LE(error_with(folder_, std::nullopt), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    RopeScalingOption,
    testing::Values(ScaledModel{"llama_linear", {.scaling = RopeScaling::kLinear, .factor = 4}},
                    ScaledModel{"llama_yarn", {.scaling = RopeScaling::kYarn, .factor = 8}}));

}  // namespace
}  // namespace longtune
