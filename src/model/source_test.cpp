#include "model/source.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/config.h"

namespace longtune {
namespace {

std::vector<float> values(const ModelSource& source, const SourceTensor& tensor) {
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor.N * row_bytes(tensor.format, tensor.K)));
  source.read_rows(tensor.name, 0, tensor.N, bytes);
  std::vector<float> result(static_cast<std::size_t>(tensor.N * tensor.K));
  const WeightView view = weight_view(tensor.format, tensor.N, tensor.K, bytes.data());
  for (std::int64_t row = 0; row < tensor.N; ++row) {
    unpack(view, row, 0, tensor.K, result.data() + row * tensor.K);
  }
  return result;
}

// The same model as a directory and as the GGUF file that llama.cpp's converter makes of it.
class SameModel : public testing::TestWithParam<const char*> {};

TEST_P(SameModel, ReadsTheSameFromBothFormats) {
  const std::filesystem::path directory =
      std::filesystem::path(LONGTUNE_GOLDENS) / "models" / GetParam();
  const auto hf = open_model(directory);
  const auto gguf = open_model(directory / "model.gguf");
  const ModelConfig& a = hf->config();
  const ModelConfig& b = gguf->config();
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(std::tuple(a.L, a.C, a.F, a.Hq, a.Hkv, a.D, a.V),
            std::tuple(b.L, b.C, b.F, b.Hq, b.Hkv, b.D, b.V));
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(std::tuple(a.tied_embeddings, a.qkv_bias, a.o_bias, a.mlp_bias, a.qk_norm),
            std::tuple(b.tied_embeddings, b.qkv_bias, b.o_bias, b.mlp_bias, b.qk_norm));
  EXPECT_EQ(rope_frequencies(a.rope, a.D).frequencies, rope_frequencies(b.rope, b.D).frequencies);
  ASSERT_EQ(hf->tensors().size(), gguf->tensors().size());
  for (const SourceTensor& tensor : hf->tensors()) {
    const SourceTensor* twin = gguf->find(tensor.name);
    ASSERT_NE(twin, nullptr) << tensor.name;
    EXPECT_EQ(values(*hf, tensor), values(*gguf, *twin)) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens,
                         SameModel,
                         testing::Values("llama", "llama_tied", "qwen2", "qwen3"));

}  // namespace
}  // namespace longtune
