#include "model/rope_override.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/json.h"
#include "model/hf_config.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

RopeOverride linear(double factor) {
  return {.scaling = RopeScaling::kLinear, .factor = factor};
}

RopeOverride yarn(double factor) {
  return {.scaling = RopeScaling::kYarn, .factor = factor};
}

// As SmolLM2 is.
ModelConfig model() {
  return {.D = 64, .rope = {.theta = 100000}, .max_context = 8192};
}

TEST(RopeOverride, OfNothingIsTheFile) {
  ModelConfig config = model();
  config.rope.scaling = RopeScaling::kLlama3;
  config.rope.factor = 8;
  const ModelConfig same = with_rope(config, std::nullopt);
  EXPECT_EQ(same.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(same.rope.factor, 8);
  EXPECT_EQ(same.max_context, 8192);
}

// Goldens whose configuration names a scaling and its factor alone: asked for of the same model
// without any, they give what transformers computes.
TEST(RopeOverride, MeansWhatTransformersMeans) {
  int compared = 0;
  for (auto golden : read_json(LONGTUNE_GOLDENS "/rope.json")) {
    auto& parameters = golden["config"]["rope_parameters"];
    const std::string type = parameters["rope_type"];
    if (parameters.size() != 3 || (type != "linear" && type != "yarn")) {
      continue;
    }
    const double factor = parameters["factor"];
    parameters["rope_type"] = "default";
    parameters.erase("factor");
    const ModelConfig plain = parse_hf_config(golden["config"], "golden");
    const ModelConfig scaled = with_rope(plain, type == "linear" ? linear(factor) : yarn(factor));
    const RopeFrequencies got = rope_frequencies(scaled.rope, scaled.D);
    const auto& want = golden["frequencies"];
    ASSERT_EQ(got.frequencies.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto expected = want[i].get<double>();
      EXPECT_NEAR(got.frequencies[i], expected, expected * std::ldexp(1.0, -22))
          << type << " " << i;
    }
    EXPECT_NEAR(got.scale, golden["scale"].get<double>(), 1e-6);
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

TEST(RopeOverride, StretchesTheLongestContext) {
  EXPECT_EQ(with_rope(model(), linear(2)).max_context, 16384);
  EXPECT_EQ(with_rope(model(), yarn(1.5)).max_context, 12288);
  EXPECT_EQ(with_rope(model(), RopeOverride{}).max_context, 8192);
  ModelConfig unknown = model();
  unknown.max_context = 0;
  EXPECT_EQ(with_rope(unknown, linear(2)).max_context, 0);
  ModelConfig huge = model();
  huge.max_context = INT64_MAX;
  EXPECT_EQ(with_rope(huge, linear(kLargestRopeFactor)).max_context, std::int64_t{1} << 53U);
}

// 32,768 are 4 times 8,192: what the file says of yarn goes, its original context stays.
TEST(RopeOverride, TakesThePlaceOfTheFilesScaling) {
  ModelConfig config = model();
  config.max_context = 32768;
  config.rope = {.theta = 1e6,
                 .scaling = RopeScaling::kYarn,
                 .factor = 4,
                 .original_context = 8192,
                 .beta_fast = 16,
                 .truncate = false,
                 .attention_factor = 1.5};
  const ModelConfig other = with_rope(config, yarn(2));
  EXPECT_EQ(other.max_context, 16384);
  EXPECT_EQ(other.rope.theta, 1e6);
  EXPECT_EQ(other.rope.factor, 2);
  EXPECT_EQ(other.rope.original_context, 8192);
  EXPECT_EQ(other.rope.beta_fast, 32);
  EXPECT_TRUE(other.rope.truncate);
  EXPECT_EQ(rope_frequencies(other.rope, 64).scale, static_cast<float>(0.1 * std::log(2) + 1));
  const ModelConfig plain = with_rope(config, RopeOverride{});
  EXPECT_EQ(plain.max_context, 8192);
  EXPECT_EQ(rope_frequencies(plain.rope, 64).frequencies,
            rope_frequencies({.theta = 1e6}, 64).frequencies);
}

TEST(RopeOverride, OfDivisorsDoesNotKnowTheirContext) {
  ModelConfig config = model();
  config.rope.divisors.assign(32, 2);
  EXPECT_EQ(with_rope(config, RopeOverride{}).max_context, 0);
  EXPECT_TRUE(with_rope(config, linear(2)).rope.divisors.empty());
  expect_error([&] { (void)with_rope(config, yarn(2)); },
               ErrorCode::kUnsupported,
               "[rope] --rope-scaling yarn:2 needs the context that the model was made for, which "
               "its file does not say; linear:2 does not");
}

TEST(RopeOverride, IsWrittenAsTheOptionTakesIt) {
  EXPECT_EQ(text_of(RopeChoice()), "file");
  EXPECT_EQ(text_of(RopeChoice(RopeOverride{})), "none");
  EXPECT_EQ(text_of(RopeChoice(linear(2))), "linear:2");
  EXPECT_EQ(text_of(RopeChoice(yarn(1.5))), "yarn:1.5");
}

}  // namespace
}  // namespace longtune
