#include "model/shape_source.h"

#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

TEST(ShapeSource, HasThePublishedSizes) {
  const auto source = open_shape("qwen3-8b", 0);
  std::int64_t linears = 0;
  for (const SourceTensor& tensor : source->tensors()) {
    linears += tensor.name.find("_proj.weight") != std::string::npos ? tensor.N * tensor.K : 0;
  }
  EXPECT_EQ(linears, 6'945'767'424);  // 36 layers of 192,937,984
  EXPECT_EQ(source->find("lm_head.weight")->N, 151936);
  EXPECT_EQ(source->find("model.embed_tokens.weight")->format, WeightFormat::kBf16);
  EXPECT_EQ(open_shape("qwen3-4b", 0)->find("model.embed_tokens.weight")->format,
            WeightFormat::kNf4);
}

TEST(ShapeSource, ComputesFiniteNumbers) {
  const auto source = open_shape("qwen3-0.6b", 1);
  const DecoderOptions options{.context = 64, .cell_tokens = 64};
  Arena arena(plan_decoder(*source, options).need(Tier::kDevice),
              Arena::Options::from_environment());
  Plan plan;
  Decoder decoder(*source, options, arena, plan);
  decoder.load(*source, {});
  const std::vector<std::int32_t> tokens{1, 200, 3000};
  decoder.forward(tokens, 0);
  const std::vector<float> losses = decoder.losses(std::vector<std::int32_t>{2, 3, 4});
  for (const float loss : losses) {
    EXPECT_GT(loss, 1);
    EXPECT_LT(loss, 100);
  }
}

TEST(ShapeSource, NamesWhatItDoesNotKnow) {
  expect_error([] { (void)open_shape("qwen9", 0); },
               ErrorCode::kInvalidArgument,
               "--shape 'qwen9' is none of qwen3-0.6b, qwen3-4b, qwen3-8b, llama3.1-8b");
  expect_error([] { (void)open_shape("qwen3-8b", 37); },
               ErrorCode::kInvalidArgument,
               "--layers 37 is not in 1 .. 36, the layers of qwen3-8b");
}

}  // namespace
}  // namespace longtune
