// What adapters and moments are read from and written to, and what is refused.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/tensor_file.h"
#include "support/expect_error.h"
#include "support/golden.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

LoraConfig read_config(const std::string& text) {
  return parse_lora_config(parse_json(text, "adapter_config.json"), "adapter_config.json");
}

// A sound configuration with `patch` laid over it (JSON merge patch: null removes).
LoraConfig patched(const json& patch) {
  json config = json::parse(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
                                "target_modules": ["q_proj", "v_proj"]})");
  config.merge_patch(patch);
  return read_config(config.dump());
}

TEST(LoraConfigFile, ReadsWhatPeftWrites) {
  int adapters = 0;
  for (const auto& model : fs::directory_iterator(test::goldens() / "models")) {
    for (const char* name : {"adapter", "adapter_rslora"}) {
      if (fs::exists(model.path() / name)) {
        const LoraConfig config = read_lora_config(model.path() / name);
        EXPECT_EQ(config.rank, 4);
        EXPECT_EQ(config.alpha, 8);
        EXPECT_EQ(config.rslora, std::string_view(name) == "adapter_rslora");
        ++adapters;
      }
    }
  }
  EXPECT_GT(adapters, 8);
  const LoraConfig config = patched({{"use_dora", false},
                                     {"init_lora_weights", "gaussian"},
                                     {"lora_dropout", 0.5},
                                     {"rank_pattern", json::object()},
                                     {"modules_to_save", json::array()},
                                     {"layers_pattern", ""},
                                     {"base_model_name_or_path", "some/model"}});
  EXPECT_EQ(config.dropout, 0.5);
  EXPECT_TRUE(config.has(LinearKind::kV));
  EXPECT_FALSE(config.has(LinearKind::kO));
}

TEST(LoraConfigFile, RefusesByNameEverySettingInUseThatItDoesNotKnow) {
  const auto refuses = [](const json& patch, std::string_view part) {
    expect_error([&] { (void)patched(patch); }, ErrorCode::kUnsupported, part);
  };
  refuses({{"peft_type", "IA3"}}, "adapter_config.json: 'peft_type' 'IA3' is not LORA");
  refuses({{"bias", "all"}}, "'bias' 'all' is not none");
  for (const char* init : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "eva", "mica"}) {
    refuses({{"init_lora_weights", init}},
            "'init_lora_weights' '" + std::string(init) + "' is none of true, false and gaussian");
  }
  for (const char* name : {"use_dora",
                           "fan_in_fan_out",
                           "lora_bias",
                           "use_qalora",
                           "use_bdlora",
                           "ensure_weight_tying",
                           "a_setting_of_2030"}) {
    refuses({{name, true}}, "'" + std::string(name) + "' 'true' is not supported");
  }
  for (const char* name : {"rank_pattern",
                           "alpha_pattern",
                           "loftq_config",
                           "corda_config",
                           "eva_config",
                           "arrow_config",
                           "kasa_config",
                           "monteclora_config",
                           "velora_config",
                           "lora_ga_config",
                           "megatron_config",
                           "trainable_token_indices"}) {
    refuses({{name, {{"x", 1}}}}, "'" + std::string(name) + "' '{\"x\":1}' is not supported");
  }
  for (const char* name : {"modules_to_save",
                           "layers_to_transform",
                           "layer_replication",
                           "exclude_modules",
                           "target_parameters",
                           "alora_invocation_tokens"}) {
    refuses({{name, {1}}}, "'" + std::string(name) + "' '[1]' is not supported");
  }
  refuses({{"layers_pattern", "h"}}, "'layers_pattern' 'h' is not supported");
  refuses({{"target_modules", "all-linear"}}, "target_modules is no list of names");
  refuses({{"target_modules", {"lm_head"}}}, "target module 'lm_head' is none of the linear");
  refuses({{"target_modules", {3}}}, "target module '3' is none");
}

TEST(LoraConfigFile, RefusesMalformedValues) {
  const auto refuses = [](const json& patch, std::string_view part) {
    expect_error([&] { (void)patched(patch); }, ErrorCode::kBadInput, part);
  };
  refuses({{"peft_type", nullptr}}, "lacks 'peft_type'");
  refuses({{"r", nullptr}}, "lacks 'r'");
  refuses({{"lora_alpha", nullptr}}, "lacks 'lora_alpha'");
  refuses({{"r", 0}}, "adapter_config.json: [lora] --lora-rank 0 is not between 1 and 4096");
  refuses({{"lora_alpha", 0}}, "--lora-alpha 0 is not above 0 and at most 1000000");
  refuses({{"lora_alpha", 1e30}}, "--lora-alpha 1e+30 is not above 0 and at most 1000000");
  refuses({{"lora_dropout", 1}}, "--lora-dropout 1 is not in [0, 1)");
  refuses({{"use_rslora", 1}}, "'use_rslora' is 1, not true or false");
  refuses({{"target_modules", json::array()}}, "--lora-targets names no layer");
  expect_error([] { (void)read_config("[]"); }, ErrorCode::kBadInput, "is a JSON array");
  const TemporaryDirectory none;
  expect_error(
      [&] { (void)read_lora_config(none.path()); }, ErrorCode::kBadInput, "adapter_config.json");
}

TEST(LoraConfigFile, MessagesHoldNoControlCharactersAndStayShort) {
  const auto message = [](const json& patch) {
    try {
      (void)patched(patch);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string bad = "\x1B[31m" + std::string(100'000, 'x');
  for (const json& patch : {json{{"peft_type", bad}},
                            json{{"bias", bad}},
                            json{{"init_lora_weights", bad}},
                            json{{"target_modules", {bad}}},
                            json{{bad, true}},
                            json{{"rank_pattern", {{bad, 1}}}}}) {
    const std::string text = message(patch);
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\x1B'), std::string::npos);
    EXPECT_LT(text.size(), 300U);
  }
}

TEST(LoraConfig, RefusesAnAlphaThatNoFileCouldHold) {
  for (const double alpha : {0.0,
                             -1.0,
                             1e30,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    expect_error([&] { check({.alpha = alpha}); },
                 ErrorCode::kInvalidArgument,
                 fmt::format("--lora-alpha {} is not above 0 and at most 1000000", alpha));
  }
  check({.alpha = 1e6});
}

// An adapter of rank 2 on the queries of one layer: A (2, 4) and B (4, 2).
struct TinyAdapter {
  Arena arena{1 << 16, Arena::Options::from_environment()};
  Plan host;
  Adapter adapter{{.L = 1, .C = 4, .F = 6, .Hq = 2, .Hkv = 1, .D = 2, .V = 5},
                  {.rank = 2, .targets = {true}},
                  Tier::kDevice,
                  arena,
                  host};

  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> result(adapter.parameters());
    copy_to_host(result.data(), adapter.params(), adapter.params().bytes());
    return result;
  }
};

constexpr const char* kA = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
constexpr const char* kB = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

// A file of tensors of zeros; 4 bytes for each value of any dtype but F16 and BF16.
fs::path write_tensors(const fs::path& path, const std::vector<SafetensorsTensor>& tensors) {
  SafetensorsWriter writer(path, tensors, {});
  for (const SafetensorsTensor& tensor : tensors) {
    std::int64_t bytes = tensor.dtype.ends_with("16") ? 2 : 4;
    for (const std::int64_t dim : tensor.shape) {
      bytes *= dim;
    }
    writer.write(std::vector<std::byte>(bytes));
  }
  writer.finish();
  return path;
}

TEST(AdapterFile, ReadsWhatItWrote) {
  const TemporaryDirectory directory;
  TinyAdapter saved;
  saved.adapter.initialise(3);
  save_adapter(saved.adapter, directory.path(), "base");
  TinyAdapter loaded;
  EXPECT_NE(loaded.values(), saved.values());
  load_adapter(loaded.adapter, directory.path());
  EXPECT_EQ(loaded.values(), saved.values());
  EXPECT_EQ(read_lora_config(directory.path()).rank, 2);
}

TEST(AdapterFile, RefusesTensorsThatDoNotFit) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "adapter_model.safetensors";
  TinyAdapter tiny;
  const auto refuses = [&](const std::vector<SafetensorsTensor>& tensors, std::string_view part) {
    write_tensors(file, tensors);
    expect_error([&] { load_adapter(tiny.adapter, directory.path()); }, ErrorCode::kBadInput, part);
  };
  const SafetensorsTensor a{.name = kA, .dtype = "F32", .shape = {2, 4}};
  const SafetensorsTensor b{.name = kB, .dtype = "BF16", .shape = {4, 2}};
  write_tensors(file, {a, b});
  load_adapter(tiny.adapter, directory.path());

  refuses({a}, "adapter_model.safetensors: '" + std::string(kB) + "' is missing");
  SafetensorsTensor other = b;
  other.shape = {2, 4};
  refuses({a, other}, "lora_B.weight' has shape (2, 4), but (4, 2) is needed");
  other = b;
  other.dtype = "I32";
  refuses({a, other}, "lora_B.weight' is I32, not F32, F16 or BF16");
  other.name = "left\x1Bover";
  refuses({a, b, other}, "'left\\x1Bover' has no place in this model");
  write_tensors(file, {a, b});
  fs::resize_file(file, fs::file_size(file) - 1);
  expect_error([&] { load_adapter(tiny.adapter, directory.path()); },
               ErrorCode::kBadInput,
               "is it truncated?");
  fs::remove(file);
  expect_error([&] { load_adapter(tiny.adapter, directory.path()); },
               ErrorCode::kBadInput,
               "adapter_model.safetensors: No such file");
}

// As checkpoints hold them.
TEST(TensorFile, RefusesMomentsOfAnotherDtypeOrSize) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "optimizer.safetensors";
  const TinyAdapter tiny;
  const std::vector<NamedTensor> moments{{"first_moments", tiny.adapter.first_moments()},
                                         {"second_moments", tiny.adapter.second_moments()}};
  const auto refuses = [&](const SafetensorsTensor& second, std::string_view part) {
    write_tensors(file, {{.name = "first_moments", .dtype = "F32", .shape = {16}}, second});
    expect_error([&] { load_tensors(file, moments); }, ErrorCode::kBadInput, part);
  };
  refuses({.name = "second_moments", .dtype = "U32", .shape = {16}},
          "optimizer.safetensors: 'second_moments' is U32, not F32, F16 or BF16");
  refuses({.name = "second_moments", .dtype = "F32", .shape = {17}},
          "'second_moments' has shape (17), but (16) is needed");
}

}  // namespace
}  // namespace longtune
