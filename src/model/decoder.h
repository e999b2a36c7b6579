#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/routed_attention.h"
#include "device/arena.h"
#include "device/host_memory.h"
#include "device/plan.h"
#include "kv/store.h"
#include "model/adapter.h"
#include "model/layer.h"
#include "model/options.h"
#include "model/source.h"

namespace longtune {

struct DecoderOptions {
  ModelOptions model;
  ModelUse use = ModelUse::kInference;
  std::int64_t context = 0;      ///< the most tokens of a sequence
  std::int64_t cell_tokens = 0;  ///< the most tokens computed at once
  KvKeep kv_keep = KvKeep::kAllLayers;
  std::optional<LoraConfig> lora;  ///< none: the base model alone
  Kept kept;                       ///< in training
  Offload offload;                 ///< in training
};

/// A decoder language model on the device: weights, adapter, keys and values, and the buffers of
/// one cell. Runs the grid of (layer, cell) steps one cell at a time: forward through all layers,
/// then, in training, backward through them with everything inside a layer recomputed.
class Decoder {
 public:
  /// Takes all memory: the device's from `arena` (a planning one too), the host's by rows in
  /// `plan`. The last to take from the arena, since the buffers of layers and head share memory.
  Decoder(const ModelSource& source, const DecoderOptions& options, Arena& arena, Plan& plan);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Reads the weights; see ModelWeights::load.
  void load(const ModelSource& source, const std::function<void(double)>& progress);

  /// Runs a cell forward. Tokens before `first_position` must have run since they were last
  /// replaced. Without `dropout_key` nothing is dropped; one key a sample. Throws Error
  /// kInvalidArgument past cell or context.
  void forward(std::span<const std::int32_t> tokens,
               std::int64_t first_position,
               std::optional<std::uint64_t> dropout_key = std::nullopt);

  /// Logits (V) after the last token of the cell that ran forward last. This and what follows throw
  /// Error kInternal where none did.
  [[nodiscard]] std::vector<float> last_logits();

  /// Nats of each target (ops::kNoTarget: 0) after the cell that ran forward last.
  [[nodiscard]] std::vector<float> losses(std::span<const std::int32_t> targets);

  /// The same, and back-propagates grad_scale times their sum through the cell, adding to the
  /// adapter's gradients. Training only; once after each forward, and the last that is asked of it.
  [[nodiscard]] std::vector<float> losses_and_gradients(std::span<const std::int32_t> targets,
                                                        float grad_scale);

  /// The source's, with the RoPE scaling that was chosen.
  [[nodiscard]] const ModelConfig& config() const { return config_; }

  /// A hash of the weights and of what else decides what the loaded model computes: a resumed run
  /// checks that it has the same base model.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

  [[nodiscard]] Adapter* adapter() { return adapter_ ? &*adapter_ : nullptr; }

  /// What moved between the tiers so far; nothing where keys and values are on the device.
  [[nodiscard]] std::optional<TieredKvStore::Traffic> traffic() const;

  [[nodiscard]] const Adapter* adapter() const { return adapter_ ? &*adapter_ : nullptr; }

 private:
  struct HeadBuffers;

  void take_keys_and_values(Arena& arena, Plan& plan);
  void take_buffers(Arena& arena, Plan& plan);
  [[nodiscard]] LayerStep step(std::int64_t layer) const;
  [[nodiscard]] LayerKept kept(std::int64_t layer) const;
  [[nodiscard]] LayerActivations activations(std::int64_t layer) const;
  void require_cell() const;
  [[nodiscard]] TensorView layer_input(std::int64_t layer, std::int64_t T) const;
  [[nodiscard]] TensorView layer_input(std::int64_t layer) const;  // of the cell
  [[nodiscard]] bool keeps_inputs_on_host() const;
  [[nodiscard]] std::int64_t input_slots() const;
  [[nodiscard]] std::byte* host_input(std::int64_t layer) const;
  [[nodiscard]] std::vector<float> run_head(std::span<const std::int32_t> targets,
                                            const TensorView& dx,
                                            float grad_scale);

  ModelConfig config_;
  DecoderOptions options_;
  std::int64_t cell_capacity_;
  ModelWeights weights_;
  std::optional<Adapter> adapter_;
  std::optional<KvStore> kv_;                ///< dense attention alone
  std::unique_ptr<RoutedAttention> routed_;  ///< or this
  float rope_scale_ = 1;
  std::uint64_t fingerprint_ = 0;

  TensorView frequencies_;  ///< (D/2) f32
  TensorView cos_;          ///< (T, D/2) f32
  TensorView sin_;          ///< (T, D/2) f32
  TensorView tokens_;       ///< (T) i32
  TensorView targets_;      ///< (T) i32
  TensorView losses_;       ///< (T) f32
  TensorView inputs_;       ///< (L + 1, T, C) in training, (2, T, C) in inference or where
                            ///< the host has them
  HostMemory host_inputs_;  ///< (L, T, C), where offloaded
  TensorView dx_;           ///< (T, C), training
  std::unique_ptr<HeadBuffers> head_;
  std::vector<LayerActivations> activations_;  ///< of each layer: what it keeps, and what all share
  std::optional<LayerGradients> gradients_;

  Cell cell_;             ///< that ran forward last
  bool has_run_ = false;  ///< to its end, and its layers' inputs are there still
  std::optional<std::uint64_t> dropout_key_;
};

/// What a decoder would need of every tier: made by constructing it on a planning arena.
[[nodiscard]] Plan plan_decoder(const ModelSource& source, const DecoderOptions& options);

}  // namespace longtune
