#include "model/hf_config.h"

#include <gtest/gtest.h>

#include "io/json.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

using nlohmann::json;

// A configuration that is understood; `changes` are merged in, null removing nothing but setting.
json config_json(const std::string& architecture, const json& changes = json::object()) {
  json result = {{"architectures", {architecture}},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"vocab_size", 100},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", 4096}};
  if (architecture == "MistralForCausalLM") {
    result["sliding_window"] = nullptr;
  }
  result.update(changes);
  return result;
}

ModelConfig llama(const json& changes) {
  return parse_hf_config(config_json("LlamaForCausalLM", changes), "c.json");
}

void refuses(const char* architecture, const json& changes, ErrorCode code, std::string_view part) {
  expect_error(
      [&] { (void)parse_hf_config(config_json(architecture, changes), "c.json"); }, code, part);
}

TEST(HfConfig, ReadsSizesAndDefaults) {
  const ModelConfig config = llama({{"rms_norm_eps", 1e-5}, {"tie_word_embeddings", true}});
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.L, 2);
  EXPECT_EQ(config.C, 64);
  EXPECT_EQ(config.F, 96);
  EXPECT_EQ(config.Hq, 4);
  EXPECT_EQ(config.Hkv, 2);
  EXPECT_EQ(config.D, 16);
  EXPECT_EQ(config.V, 100);
  EXPECT_EQ(config.norm_eps, 1e-5F);
  EXPECT_EQ(config.max_context, 4096);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias || config.qk_norm);
  EXPECT_EQ(llama({{"num_key_value_heads", nullptr}}).Hkv, 4);
  EXPECT_EQ(llama({{"head_dim", 32}}).D, 32);
}

TEST(HfConfig, KnowsWhatEachArchitectureHas) {
  const ModelConfig biased = llama({{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
  const ModelConfig qwen2 = parse_hf_config(config_json("Qwen2ForCausalLM"), "c.json");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = parse_hf_config(config_json("Qwen3ForCausalLM"), "c.json");
  EXPECT_TRUE(qwen3.qk_norm && !qwen3.qkv_bias);
  EXPECT_EQ(qwen3.D, 128);
  const ModelConfig mistral = parse_hf_config(config_json("MistralForCausalLM"), "c.json");
  EXPECT_EQ(mistral.architecture, "mistral");
  json by_type = config_json("LlamaForCausalLM", {{"model_type", "llama"}});
  by_type.erase("architectures");
  EXPECT_EQ(parse_hf_config(by_type, "c.json").architecture, "llama");
}

TEST(HfConfig, ReadsBothSpellingsOfRope) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 2.0},
                       {"high_freq_factor", 5.0},
                       {"original_max_position_embeddings", 1024}};
  json fresh = llama3;
  fresh["rope_theta"] = 500000.0;
  for (const ModelConfig& config : {llama({{"rope_theta", 500000.0}, {"rope_scaling", llama3}}),
                                    llama({{"rope_parameters", fresh}})}) {
    EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(config.rope.theta, 500000);
    EXPECT_EQ(config.rope.factor, 8);
    EXPECT_EQ(config.rope.low_freq_factor, 2);
    EXPECT_EQ(config.rope.high_freq_factor, 5);
    EXPECT_EQ(config.rope.original_context, 1024);
  }
  const ModelConfig old = llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}});
  EXPECT_EQ(old.rope.scaling, RopeScaling::kLinear);
  const ModelConfig yarn = llama({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}});
  EXPECT_EQ(yarn.rope.original_context, 4096);
}

TEST(HfConfig, RefusesByNameWhatItDoesNotUnderstand) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  constexpr const char* kLlama = "LlamaForCausalLM";
  refuses("GPT2LMHeadModel", json::object(), kUnsupported, "architecture 'GPT2LMHeadModel'");
  refuses("LlamaForSequenceClassification",
          json::object(),
          kUnsupported,
          "architecture 'LlamaForSequence");
  refuses(kLlama, {{"model_type", "granite"}}, kUnsupported, "(model type 'granite')");
  refuses(kLlama, {{"hidden_act", "gelu"}}, kUnsupported, "c.json: hidden_act 'gelu'");
  refuses(kLlama, {{"quantization_config", {{"bits", 4}}}}, kUnsupported, "quantization_config");
  refuses(kLlama, {{"num_local_experts", 8}}, kUnsupported, "mixtures of experts");
  refuses(kLlama, {{"partial_rotary_factor", 0.5}}, kUnsupported, "partial_rotary_factor");
  refuses("MistralForCausalLM", {{"sliding_window", 4096}}, kUnsupported, "sliding_window 4096");
  refuses("Qwen2ForCausalLM",
          {{"use_sliding_window", true}, {"max_window_layers", 1}},
          kUnsupported,
          "use_sliding_window");
  refuses("Qwen3ForCausalLM",
          {{"layer_types", {"full_attention", "sliding_attention"}}},
          kUnsupported,
          "'sliding_attention'");
  refuses("Qwen2ForCausalLM", {{"attention_bias", true}}, kUnsupported, "attention_bias");
  refuses(kLlama,
          {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
          kUnsupported,
          "c.json: rope_scaling: RoPE type 'dynamic'");
  refuses(kLlama,
          {{"rope_parameters", {{"rope_type", "longrope"}}}},
          kUnsupported,
          "RoPE type 'longrope'");
  refuses(kLlama,
          {{"rope_parameters", {{"rope_type", "default"}, {"mrope_section", {1, 2}}}}},
          kUnsupported,
          "'mrope_section'");
  json absent = config_json("MistralForCausalLM");
  absent.erase("sliding_window");
  expect_error(
      [&] { (void)parse_hf_config(absent, "c.json"); }, kUnsupported, "sliding_window is absent");
}

TEST(HfConfig, AWindowThatIsNotInUseIsNone) {
  EXPECT_NO_THROW((void)parse_hf_config(
      config_json("Qwen2ForCausalLM", {{"use_sliding_window", false}, {"sliding_window", 512}}),
      "c.json"));
  EXPECT_NO_THROW((void)parse_hf_config(
      config_json("Qwen2ForCausalLM", {{"use_sliding_window", true}, {"max_window_layers", 2}}),
      "c.json"));
}

TEST(HfConfig, RefusesImpossibleValues) {
  constexpr auto kBadInput = ErrorCode::kBadInput;
  constexpr const char* kLlama = "LlamaForCausalLM";
  refuses(kLlama, {{"hidden_size", nullptr}}, kBadInput, "c.json: lacks 'hidden_size'");
  refuses(kLlama, {{"hidden_size", "64"}}, kBadInput, "'hidden_size' is string");
  refuses(kLlama, {{"hidden_size", 63}}, kBadInput, "hidden_size 63 is no multiple");
  refuses(kLlama, {{"num_hidden_layers", 0}}, kBadInput, "c.json: layers is 0");
  refuses(kLlama, {{"num_key_value_heads", 3}}, kBadInput, "4 query heads are no multiple of 3");
  refuses(kLlama, {{"head_dim", 15}}, kBadInput, "head dimension 15 is odd");
  refuses(kLlama,
          {{"vocab_size", 2'000'000}},
          kBadInput,
          "vocabulary is 2000000; it must be from 1 to 1048576");
  refuses(kLlama, {{"vocab_size", 1LL << 62U}}, kBadInput, "vocabulary is 4611686018427387904");
  refuses(kLlama, {{"num_hidden_layers", 20000}}, kBadInput, "layers is 20000");
  refuses(kLlama, {{"rms_norm_eps", -1e-6}}, kBadInput, "epsilon");
  refuses(kLlama, {{"rope_theta", 0}}, kBadInput, "RoPE theta is 0");
  refuses(kLlama, {{"architectures", "LlamaForCausalLM"}}, kBadInput, "'architectures' is no list");
  refuses(kLlama, {{"rope_scaling", {{"type", "linear"}}}}, kBadInput, "lacks 'factor'");
  refuses(kLlama, {{"rope_scaling", {{"type", "linear"}, {"factor", -1}}}}, kBadInput, "factor is");
  refuses(kLlama, {{"rope_scaling", 7}}, kBadInput, "rope_scaling: is a JSON number");
}

}  // namespace
}  // namespace longtune
