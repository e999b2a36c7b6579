#include "model/gguf_source.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/gguf_builder.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8 = 8;

// A Llama of one layer: width 64, two query heads and one KV head of 32, vocabulary 4.
struct TinyGguf {
  std::string architecture = "llama";
  bool head = false;
  std::string skip;  ///< a tensor to leave out
  std::uint32_t linear_type = kF32;
  std::int64_t table_rows = 4;
  GgufBuilder file;  ///< with more keys and tensors, where a test wants them

  static std::string floats(std::int64_t count) {
    std::string data;
    for (std::int64_t i = 0; i < count; ++i) {
      data += little_endian(static_cast<float>(i));
    }
    return data;
  }

  void key(const char* name, std::uint32_t value) {
    file.value(architecture + "." + name, GgufType::kU32, value);
  }

  void tensor(const std::string& name, const std::vector<std::int64_t>& dims) {
    const bool matrix = dims.size() == 2;
    const std::int64_t count = matrix ? dims[0] * dims[1] : dims[0];
    if (name == skip) {
      return;
    }
    if (matrix && linear_type == kQ8 && name.starts_with("blk.")) {
      std::string data;
      for (std::int64_t i = 0; i < count / 32; ++i) {
        data += std::string(34, static_cast<char>(i));
      }
      file.tensor(name, kQ8, dims, data);
    } else {
      file.tensor(
          name, matrix ? linear_type == kQ8 ? kF32 : linear_type : kF32, dims, floats(count));
    }
  }

  std::string bytes() {
    file.string("general.architecture", architecture);
    key("block_count", 1);
    key("embedding_length", 64);
    key("feed_forward_length", 96);
    key("attention.head_count", 2);
    key("attention.head_count_kv", 1);
    file.value(architecture + ".attention.layer_norm_rms_epsilon", GgufType::kF32, 1e-5F);
    tensor("token_embd.weight", {64, table_rows});
    tensor("output_norm.weight", {64});
    if (head) {
      tensor("output.weight", {64, 4});
    }
    tensor("blk.0.attn_norm.weight", {64});
    tensor("blk.0.ffn_norm.weight", {64});
    tensor("blk.0.attn_q.weight", {64, 64});
    tensor("blk.0.attn_k.weight", {64, 32});
    tensor("blk.0.attn_v.weight", {64, 32});
    tensor("blk.0.attn_output.weight", {64, 64});
    tensor("blk.0.ffn_gate.weight", {64, 96});
    tensor("blk.0.ffn_up.weight", {64, 96});
    tensor("blk.0.ffn_down.weight", {96, 64});
    return file.bytes();
  }
};

std::unique_ptr<ModelSource> open(TinyGguf& tiny) {
  const TemporaryDirectory directory;  // the file stays open when its name is gone
  return open_model(directory.write("m.gguf", tiny.bytes()));
}

void refuses(TinyGguf tiny, ErrorCode code, std::string_view part) {
  expect_error([&] { (void)open(tiny); }, code, part);
}

TEST(GgufSource, ReadsConfigurationAndTensors) {
  TinyGguf tiny;
  const auto source = open(tiny);
  const ModelConfig& config = source->config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.D, 32);
  EXPECT_EQ(config.V, 4);
  EXPECT_EQ(config.norm_eps, 1e-5F);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(source->tensors().size(), 11U);
  ASSERT_NE(source->find("model.layers.0.mlp.down_proj.weight"), nullptr);
  EXPECT_EQ(source->find("model.layers.0.mlp.down_proj.weight")->N, 64);
  EXPECT_EQ(source->find("lm_head.weight"), nullptr);
  TinyGguf untied;
  untied.head = true;
  EXPECT_FALSE(open(untied)->config().tied_embeddings);
}

// Row 64h + 16s + i of Hugging Face stands at 32h + 2i + s: worked by hand for a few rows.
TEST(GgufSource, PutsRowsOfQAndKInOrder) {
  TinyGguf tiny;
  const auto source = open(tiny);
  const auto first_value = [&](const char* name, std::int64_t row) {
    std::vector<float> values(64);
    source->read_rows(name, row, 1, std::as_writable_bytes(std::span(values)));
    return values[0] / 64;  // the row of the file
  };
  constexpr const char* kQ = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_EQ(first_value(kQ, 0), 0);
  EXPECT_EQ(first_value(kQ, 1), 2);
  EXPECT_EQ(first_value(kQ, 15), 30);
  EXPECT_EQ(first_value(kQ, 16), 1);
  EXPECT_EQ(first_value(kQ, 31), 31);
  EXPECT_EQ(first_value(kQ, 32 + 17), 32 + 3);
  EXPECT_EQ(first_value("model.layers.0.self_attn.k_proj.weight", 17), 3);
  EXPECT_EQ(first_value("model.layers.0.self_attn.v_proj.weight", 17), 17);
}

TEST(GgufSource, MovesBlocksWhole) {
  TinyGguf tiny;
  tiny.linear_type = kQ8;
  const auto source = open(tiny);
  std::vector<std::byte> rows(3 * 68);  // rows 15 to 17 stand at 30, 1 and 3
  source->read_rows("model.layers.0.self_attn.q_proj.weight", 15, 3, rows);
  EXPECT_EQ(rows[0], std::byte{60});
  EXPECT_EQ(rows[34], std::byte{61});
  EXPECT_EQ(rows[68], std::byte{2});
  EXPECT_EQ(rows[136], std::byte{6});
  EXPECT_EQ(rows[203], std::byte{7});
}

TEST(GgufSource, PutsBiasesOfQAndKInOrder) {
  TinyGguf tiny;
  tiny.tensor("blk.0.attn_q.bias", {64});
  tiny.tensor("blk.0.attn_k.bias", {32});
  tiny.tensor("blk.0.attn_v.bias", {32});
  const auto source = open(tiny);
  EXPECT_TRUE(source->config().qkv_bias);
  std::vector<float> bias(64);
  source->read_rows(
      "model.layers.0.self_attn.q_proj.bias", 0, 1, std::as_writable_bytes(std::span(bias)));
  EXPECT_EQ(bias[1], 2);
  EXPECT_EQ(bias[16], 1);
  EXPECT_EQ(bias[49], 35);
}

TEST(GgufSource, RefusesReadsThatDoNotFit) {
  TinyGguf tiny;
  const auto source = open(tiny);
  std::vector<std::byte> row(256);
  expect_error([&] { source->read_rows("nope", 0, 1, row); }, ErrorCode::kBadInput, "no tensor");
  const auto bad = [&](std::int64_t first, std::int64_t count) {
    expect_error([&] { source->read_rows("model.embed_tokens.weight", first, count, row); },
                 ErrorCode::kInvalidArgument,
                 "do not fit a target of 256 bytes");
  };
  bad(4, 1);
  bad(-1, 1);
  bad(0, 2);
  bad(0, std::int64_t{1} << 62U);
}

TEST(GgufSource, ReadsRope) {
  TinyGguf linear;
  linear.file.string("llama.rope.scaling.type", "linear");
  linear.file.value("llama.rope.scaling.factor", GgufType::kF32, 4.0F);
  EXPECT_EQ(open(linear)->config().rope.scaling, RopeScaling::kLinear);
  TinyGguf yarn;
  yarn.file.string("llama.rope.scaling.type", "yarn");
  yarn.file.value("llama.rope.scaling.factor", GgufType::kF32, 4.0F);
  yarn.key("rope.scaling.original_context_length", 8192);
  const RopeConfig rope = open(yarn)->config().rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.original_context, 8192);
  TinyGguf divided;
  divided.file.tensor("rope_freqs.weight", kF32, {16}, [] {
    std::string data;
    for (int i = 0; i < 16; ++i) {
      data += little_endian(1.0F + static_cast<float>(i));
    }
    return data;
  }());
  EXPECT_EQ(open(divided)->config().rope.divisors.at(15), 16);
}

TEST(GgufSource, RefusesByNameWhatItDoesNotUnderstand) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  TinyGguf gemma;
  gemma.architecture = "gemma2";
  refuses(gemma, kUnsupported, "m.gguf: architecture 'gemma2' is not understood");
  const auto with_key = [](const char* name, std::uint32_t value) {
    TinyGguf tiny;
    tiny.key(name, value);
    return tiny;
  };
  refuses(with_key("attention.sliding_window", 512), kUnsupported, "sliding windows");
  refuses(with_key("expert_count", 8), kUnsupported, "mixtures of experts");
  refuses(with_key("attention.logit_cap", 8), kUnsupported, "key 'llama.attention.logit_cap'");
  refuses(with_key("rope.dimension_count", 16), kUnsupported, "rotated in part");
  refuses(with_key("attention.value_length", 16), kUnsupported, "values of another width");
  TinyGguf longrope;
  longrope.file.string("llama.rope.scaling.type", "longrope");
  refuses(longrope, kUnsupported, "'longrope'");
  TinyGguf blocks;
  blocks.skip = "blk.0.attn_q.weight";
  blocks.file.tensor("blk.0.attn_q.weight", 12, {64, 64}, "");
  refuses(blocks, kUnsupported, "tensor 'blk.0.attn_q.weight' has type Q4_K");
  TinyGguf vector;
  vector.skip = "output_norm.weight";
  vector.file.tensor("output_norm.weight", kQ8, {64}, std::string(68, '\0'));
  refuses(vector, kUnsupported, "tensor 'output_norm.weight' is a vector in q8_0 blocks");
  TinyGguf extra;
  extra.tensor("blk.0.attn_qkv.weight", {64, 128});
  refuses(extra, kUnsupported, "tensor 'blk.0.attn_qkv.weight' is not understood");
}

TEST(GgufSource, RefusesWhatDoesNotFitTogether) {
  constexpr auto kBadInput = ErrorCode::kBadInput;
  TinyGguf missing;
  missing.skip = "blk.0.ffn_up.weight";
  refuses(missing, kBadInput, "tensor 'blk.0.ffn_up.weight' is missing");
  TinyGguf shape;
  shape.skip = "blk.0.ffn_up.weight";
  shape.file.tensor("blk.0.ffn_up.weight", kF32, {32, 2}, TinyGguf::floats(64));
  refuses(shape, kBadInput, "has shape (2, 32), but the configuration demands (96, 64)");
  TinyGguf vocabulary;
  vocabulary.key("vocab_size", 5);
  refuses(vocabulary, kBadInput, "vocabulary mismatch: tensor 'token_embd.weight' has 4 rows");
  TinyGguf tokens;
  tokens.file.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
  refuses(tokens, kBadInput, "tokenizer.ggml.tokens names 3 tokens");
  TinyGguf head;
  head.head = true;
  head.table_rows = 5;
  refuses(head, kBadInput, "vocabulary mismatch: tensor 'output.weight' has 4 rows");
  TinyGguf divisors;
  divisors.tensor("rope_freqs.weight", {8});
  refuses(divisors, kBadInput, "'rope_freqs.weight' is no vector of 16");
  TinyGguf zeros;
  zeros.tensor("rope_freqs.weight", {16});
  refuses(zeros, kBadInput, "RoPE divisor is 0");
  expect_error([] { (void)open_model("/nowhere/m.gguf"); }, kBadInput, "/nowhere/m.gguf");
}

// The model of the demo, where a test run has been given it.
TEST(GgufSource, OpensSmolLM2) {
  const char* path = std::getenv("LONGTUNE_TEST_MODEL");
  if (path == nullptr) {
    GTEST_SKIP() << "LONGTUNE_TEST_MODEL is not set";
  }
  const auto source = open_model(path);
  EXPECT_EQ(source->config().architecture, "llama");
  EXPECT_EQ(source->config().L, 30);
  EXPECT_EQ(source->config().C, 576);
  EXPECT_EQ(source->config().V, 49152);
  EXPECT_EQ(source->config().rope.theta, 100000);
  EXPECT_TRUE(source->config().tied_embeddings);
  EXPECT_EQ(source->tensors().size(), 272U);
  EXPECT_EQ(source->find("model.layers.29.mlp.down_proj.weight")->format, WeightFormat::kQ4_1);
}

}  // namespace
}  // namespace longtune
