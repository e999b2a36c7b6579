#include "model/hf_source.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/safetensors_builder.h"
#include "model/tensor_spec.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

using nlohmann::json;

constexpr const char* kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4, "intermediate_size": 6,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "vocab_size": 5, "tie_word_embeddings": true})";

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

// A tiny Llama's directory; tests change what they need before writing it.
struct TinyModel {
  TemporaryDirectory directory;
  std::vector<FileTensor> tensors;

  TinyModel() {
    ModelConfig config;
    config.L = 1;
    config.C = 4;
    config.F = 6;
    config.Hq = 2;
    config.Hkv = 1;
    config.D = 2;
    config.V = 5;
    config.tied_embeddings = true;
    for (const TensorSpec& spec : needed_tensors(config)) {
      tensors.push_back(
          {spec.name, "BF16", spec.is_vector ? std::vector{spec.K} : std::vector{spec.N, spec.K}});
    }
    directory.write("config.json", kConfig);
  }

  FileTensor& find(const std::string& name) {
    for (FileTensor& tensor : tensors) {
      if (tensor.name == name) {
        return tensor;
      }
    }
    throw std::runtime_error("no tensor " + name);
  }

  // The n-th byte of the data is n.
  static std::string file_bytes(std::span<const FileTensor> tensors) {
    json header = json::object();
    std::int64_t end = 0;
    for (const FileTensor& tensor : tensors) {
      std::int64_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "F64" ? 8 : 2;
      for (const std::int64_t dim : tensor.shape) {
        bytes *= dim;
      }
      header[tensor.name] = {
          {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + bytes}}};
      end += bytes;
    }
    std::string data;
    for (std::int64_t i = 0; i < end; ++i) {
      data += static_cast<char>(i);
    }
    return safetensors_bytes(header.dump(), data);
  }

  void write_single() const { directory.write("model.safetensors", file_bytes(tensors)); }

  // The first tensor in shard "a", the others in "b".
  json write_shards() const {
    const std::span all(tensors);
    directory.write("a.safetensors", file_bytes(all.first(1)));
    directory.write("b.safetensors", file_bytes(all.subspan(1)));
    json map = json::object();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      map[tensors[i].name] = i == 0 ? "a.safetensors" : "b.safetensors";
    }
    return map;
  }

  void write_index(const json& map) const {
    directory.write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  }

  [[nodiscard]] std::unique_ptr<ModelSource> open() const { return open_model(directory.path()); }

  void refuses(ErrorCode code, std::string_view part) const {
    expect_error([&] { (void)open(); }, code, part);
  }
};

TEST(HfSource, ReadsRowsOfASingleFile) {
  TinyModel model;
  model.find("model.norm.weight").dtype = "F32";
  model.write_single();
  const auto source = model.open();
  EXPECT_STREQ(source->kind(), "hugging face");
  EXPECT_EQ(source->tensors().size(), 11U);
  EXPECT_EQ(source->find("model.norm.weight")->format, WeightFormat::kF32);
  const SourceTensor* table = source->find("model.embed_tokens.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->N, 5);
  EXPECT_EQ(table->K, 4);
  std::vector<std::byte> rows(16);
  source->read_rows("model.embed_tokens.weight", 2, 2, rows);
  EXPECT_EQ(rows[0], std::byte{16});
  EXPECT_EQ(rows[15], std::byte{31});
}

TEST(HfSource, ReadsShards) {
  const TinyModel model;
  model.write_index(model.write_shards());
  const auto source = model.open();
  EXPECT_EQ(source->tensors().size(), 11U);
  std::vector<std::byte> row(8);
  source->read_rows(model.tensors[1].name, 0, 1, row);
  EXPECT_EQ(row[1], std::byte{1});
}

TEST(HfSource, LeavesHarmlessTensorsAside) {
  TinyModel model;
  model.tensors.push_back({"lm_head.weight", "BF16", {5, 4}});
  model.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}});
  model.write_single();
  EXPECT_EQ(model.open()->tensors().size(), 11U);
}

TEST(HfSource, RefusesTensorsThatDoNotFit) {
  TinyModel extra;
  extra.tensors.push_back({"model.layers.0.self_attn.q_norm.weight", "BF16", {2}});
  extra.write_single();
  extra.refuses(ErrorCode::kUnsupported, "q_norm.weight' is not understood in a llama model");
  TinyModel missing;
  missing.tensors.pop_back();
  missing.write_single();
  missing.refuses(ErrorCode::kBadInput, "tensor 'model.norm.weight' is missing");
  TinyModel shape;
  shape.find("model.layers.0.mlp.up_proj.weight").shape = {4, 6};
  shape.write_single();
  shape.refuses(ErrorCode::kBadInput, "has shape (4, 6), but the configuration demands (6, 4)");
  TinyModel vocabulary;
  vocabulary.find("model.embed_tokens.weight").shape = {7, 4};
  vocabulary.write_single();
  vocabulary.refuses(ErrorCode::kBadInput, "vocabulary mismatch");
  TinyModel dtype;
  dtype.find("model.norm.weight").dtype = "F64";
  dtype.write_single();
  dtype.refuses(ErrorCode::kUnsupported, "tensor 'model.norm.weight' has dtype F64");
}

TEST(HfSource, RefusesIncompleteDirectories) {
  const TinyModel nothing;
  nothing.refuses(ErrorCode::kBadInput, "holds neither model.safetensors nor");
  const TinyModel no_config;
  std::filesystem::remove(no_config.directory.path() / "config.json");
  no_config.refuses(ErrorCode::kBadInput, "config.json: No such file");
  const TinyModel truncated;
  truncated.write_single();
  const auto path = truncated.directory.path() / "model.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  truncated.refuses(ErrorCode::kBadInput, "is it truncated?");
}

TEST(HfSource, RefusesATruncatedShard) {
  const TinyModel model;
  model.write_index(model.write_shards());
  const auto path = model.directory.path() / "b.safetensors";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  model.refuses(ErrorCode::kBadInput, "b.safetensors: tensor");
  model.refuses(ErrorCode::kBadInput, "is it truncated?");
  std::filesystem::resize_file(path, 4);
  model.refuses(ErrorCode::kBadInput, "b.safetensors: has 4 bytes");
}

TEST(HfSource, RefusesBadShards) {
  const TinyModel model;
  const json map = model.write_shards();
  const std::string table = model.tensors[0].name;
  const auto with = [&](const json& shard) {
    json changed = map;
    changed[table] = shard;
    model.write_index(changed);
  };
  with("c.safetensors");
  model.refuses(ErrorCode::kBadInput, "c.safetensors: No such file");
  with("b.safetensors");
  model.refuses(ErrorCode::kBadInput, "is not in shard 'b.safetensors'");
  json moved = map;
  moved["model.norm.weight"] = "a.safetensors";
  model.write_index(moved);
  model.refuses(ErrorCode::kBadInput, "'model.norm.weight' is not in shard 'a.safetensors'");
  for (const char* name : {"../a.safetensors", "/etc/passwd", "", ".."}) {
    with(name);
    model.refuses(ErrorCode::kBadInput, "is no plain file name");
  }
  with(3);
  model.refuses(ErrorCode::kBadInput, "is 3, not a string");
  model.directory.write("model.safetensors.index.json", "{}");
  model.refuses(ErrorCode::kBadInput, "lacks 'weight_map'");
  model.write_index(map);
  model.directory.write("b.safetensors", TinyModel::file_bytes(model.tensors));
  model.refuses(ErrorCode::kBadInput, "is both in");
}

}  // namespace
}  // namespace longtune
