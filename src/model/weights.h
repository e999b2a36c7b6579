#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/plan.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/source.h"

namespace longtune {

/// What frozen weights are held as.
enum class BaseWeights : std::uint8_t {
  kFile,  ///< as the file holds them; GGUF blocks stay blocks
  kNf4,   ///< the blocks' linear layers in NF4 with double quantisation; embedding and head as in
          ///< the file
  kBf16,
  kF32,
};

/// "file", "nf4", "bf16", "f32".
[[nodiscard]] const char* name_of(BaseWeights base);

/// A frozen linear layer.
struct Linear {
  WeightView weight;     ///< (N, K)
  ConstTensorView bias;  ///< (N) f32, or none
};

/// A block's frozen weights.
struct LayerWeights {
  ConstTensorView attention_norm;            ///< (C) f32
  ConstTensorView mlp_norm;                  ///< (C) f32
  ConstTensorView q_norm;                    ///< (D) f32, Qwen3
  ConstTensorView k_norm;                    ///< (D) f32, Qwen3
  std::array<Linear, kLinearKinds> linears;  ///< by LinearKind

  [[nodiscard]] const Linear& linear(LinearKind kind) const {
    return linears[static_cast<int>(kind)];
  }
};

/// All frozen weights. The embedding table lies on the host unless it is also the head.
class ModelWeights {
 public:
  /// Takes the memory and charges the host's part to `plan`; nothing is read from the source but
  /// its headers. Throws Error kUnsupported where a tensor cannot be held as asked.
  ModelWeights(const ModelSource& source, BaseWeights base, Arena& arena, Plan& plan);
  ModelWeights(const ModelWeights&) = delete;
  ModelWeights& operator=(const ModelWeights&) = delete;

  /// Reads every tensor, a few rows at a time, converting on the way: the loader's own memory is
  /// kStagingBytes and, for NF4, the unquantised block scales of one tensor. `progress` is called
  /// with the share done, in [0, 1]. Throws Error as read_rows does, and kBadInput, naming
  /// file and tensor, for values that cannot be quantised.
  void load(const ModelSource& source, const std::function<void(double)>& progress);

  /// A hash of names, formats and values as the source has them, once loaded.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

  [[nodiscard]] const WeightView& embedding() const { return embedding_; }  ///< (V, C)

  [[nodiscard]] const WeightView& head() const { return head_; }  ///< (V, C)

  [[nodiscard]] const ConstTensorView& final_norm() const { return final_norm_; }

  [[nodiscard]] const LayerWeights& layer(std::int64_t index) const { return layers_.at(index); }

  static constexpr std::int64_t kStagingBytes = 8 * 1024 * 1024;

 private:
  // A tensor to be filled by load().
  struct Slot {
    std::string name;
    WeightFormat format;  ///< as held
    std::byte* memory;
    WeightView* matrix;  ///< to be set again once NF4's offset is known; null for vectors
    std::int64_t N, K;
  };

  void take_layer(const ModelSource& source, std::int64_t index, BaseWeights base, Arena& arena);
  void take_matrix(const ModelSource& source,
                   const std::string& name,
                   BaseWeights base,
                   Arena& arena,
                   WeightView& view);
  void take_host_embedding(const ModelSource& source, BaseWeights base, bool planning, Plan& plan);
  ConstTensorView take_vector(const ModelSource& source, const std::string& name, Arena& arena);
  void load_slot(const ModelSource& source, const Slot& slot);
  static void fill(const Slot& slot);  // with random values of a reasonable size
  void arrange(const Slot& slot);  // in panels, unless rows are only looked up
  static void write(const Slot& slot, std::int64_t offset, const void* source, std::int64_t bytes);

  std::vector<Slot> slots_;
  std::vector<std::byte> host_embedding_;
  std::uint64_t fingerprint_ = 0;
  WeightView embedding_;
  WeightView head_;
  ConstTensorView final_norm_;
  std::vector<LayerWeights> layers_;
};

}  // namespace longtune
