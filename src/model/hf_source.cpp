#include "model/hf_source.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/file_source.h"
#include "model/hf_config.h"
#include "model/shard_index.h"
#include "model/tensor_file.h"
#include "model/tensor_spec.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;

class HfSource final : public FileSource {
 public:
  explicit HfSource(const fs::path& directory) : directory_(directory) {
    const fs::path config_path = directory / "config.json";
    config_ = parse_hf_config(read_json(config_path), config_path.string());
    open_files();
    for (const TensorSpec& spec : needed_tensors(config_)) {
      admit_tensor(spec);
    }
    for (const auto& [name, entry] : entries_) {
      if (find(name) == nullptr && !is_harmless(name)) {
        fail(ErrorCode::kUnsupported,
             "model",
             "{}: tensor {} is not understood in a {} model",
             entry.file->name(),
             in_quotes(name),
             config_.architecture);
      }
    }
    entries_.clear();
  }

  [[nodiscard]] const char* kind() const override { return "hugging face"; }

 private:
  struct Entry {
    const Reader* file;
    SafetensorsTensor tensor;
  };

  void open_files() {
    const fs::path single = directory_ / "model.safetensors";
    const fs::path index = directory_ / "model.safetensors.index.json";
    std::error_code ignored;
    if (fs::exists(single, ignored)) {
      open_file(single);
    } else if (fs::exists(index, ignored)) {
      open_shards(index);
    } else {
      fail(ErrorCode::kBadInput,
           "model",
           "{} holds neither model.safetensors nor model.safetensors.index.json",
           directory_.string());
    }
  }

  void open_shards(const fs::path& index) {
    std::map<std::string, const Reader*> shards;
    for (const auto& [tensor, shard] : parse_shard_index(read_json(index), index.string())) {
      const auto [known, fresh] = shards.try_emplace(shard, nullptr);
      if (fresh) {
        known->second = open_file(directory_ / shard);
      }
      const auto entry = entries_.find(tensor);
      if (entry == entries_.end() || entry->second.file != known->second) {
        fail(ErrorCode::kBadInput,
             "model",
             "{}: tensor {} is not in shard {}",
             index.string(),
             in_quotes(tensor),
             in_quotes(shard));
      }
    }
  }

  const Reader* open_file(const fs::path& path) {
    files_.push_back(std::make_unique<File>(path));
    const File* file = files_.back().get();
    const Safetensors header = Safetensors::parse(*file);
    for (const SafetensorsTensor& tensor : header.tensors()) {
      const auto [known, fresh] = entries_.emplace(tensor.name, Entry{file, tensor});
      if (!fresh) {
        fail(ErrorCode::kBadInput,
             "model",
             "tensor {} is both in {} and in {}",
             in_quotes(tensor.name),
             known->second.file->name(),
             file->name());
      }
    }
    return file;
  }

  void admit_tensor(const TensorSpec& spec) {
    const auto found = entries_.find(spec.name);
    if (found == entries_.end()) {
      fail(ErrorCode::kBadInput,
           "model",
           "{}: tensor {} is missing",
           directory_.string(),
           in_quotes(spec.name));
    }
    const auto& [file, tensor] = found->second;
    const std::optional<WeightFormat> format = float_format(tensor.dtype);
    if (!format) {
      fail(ErrorCode::kUnsupported,
           "model",
           "{}: tensor {} has dtype {}; F32, F16 and BF16 are read",
           file->name(),
           in_quotes(spec.name),
           tensor.dtype);
    }
    add(admit(spec, {file->name(), tensor.name, tensor.shape, *format}), {file, tensor.offset});
  }

  // Tables that old checkpoints keep and no code reads, and a second copy of a tied table.
  [[nodiscard]] bool is_harmless(const std::string& name) const {
    return name.ends_with(".rotary_emb.inv_freq") ||
           (config_.tied_embeddings && name == "lm_head.weight");
  }

  fs::path directory_;
  std::map<std::string, Entry> entries_;  ///< while opening
};

}  // namespace

std::unique_ptr<ModelSource> open_hf_model(const fs::path& directory) {
  return std::make_unique<HfSource>(directory);
}

}  // namespace longtune
