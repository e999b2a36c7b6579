#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "quant/weight.h"

namespace longtune {

/// A tensor as its file holds it: N rows of K values (a vector has N = 1).
struct SourceTensor {
  std::string name;
  WeightFormat format = WeightFormat::kF32;
  std::int64_t N = 0;
  std::int64_t K = 0;
};

/// A model's configuration and weights in a Hugging Face directory or a GGUF file, read on demand.
///
/// Whatever the file, names are those of Hugging Face checkpoints
/// ("model.layers.0.self_attn.q_proj.weight"), and the rows of Q and K (and their biases) stand in
/// Hugging Face's order (half-split RoPE pairs), also where a GGUF file has them permuted.
class ModelSource {
 public:
  virtual ~ModelSource() = default;
  ModelSource() = default;
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;

  /// "hugging face" or "gguf"; for `inspect`.
  [[nodiscard]] virtual const char* kind() const = 0;

  /// All tensors, sorted by name; every one is needed by the architecture and has the shape that
  /// the configuration demands (checked when the source is opened).
  [[nodiscard]] virtual const std::vector<SourceTensor>& tensors() const = 0;

  /// The path of the file that holds a tensor. Throws Error kBadInput for a name the source does
  /// not have.
  [[nodiscard]] virtual const std::string& file_of(const std::string& name) const = 0;

  /// False where only shapes are known: weights are random then, and nothing can be read.
  [[nodiscard]] virtual bool has_values() const { return true; }

  /// Reads rows [first, first + count) in the file's format into `target`, of row_bytes * count
  /// bytes. Of an interleaved matrix each head is read whole: callers take rows in runs. Throws
  /// Error kIo where the system refuses, kBadInput for a name the source does not have,
  /// kInvalidArgument for rows it does not have or a target of another size.
  virtual void read_rows(const std::string& name,
                         std::int64_t first,
                         std::int64_t count,
                         std::span<std::byte> target) const = 0;

  [[nodiscard]] const SourceTensor* find(const std::string& name) const;
};

/// Opens a directory with config.json and safetensors (sharded too), or a `.gguf` file. Reads
/// headers only. Throws Error: kBadInput for malformed or incomplete files, naming file, thing and
/// value; kUnsupported, by name, for what longtune does not understand (architectures, sliding
/// windows, mixture of experts, block types, RoPE variants); kIo where the system refuses.
[[nodiscard]] std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path);

}  // namespace longtune
