#pragma once

#include <cstdint>
#include <optional>

#include "attention/options.h"
#include "kv/tiered_store.h"
#include "model/rope_override.h"
#include "model/weights.h"
#include "tensor/tensor_view.h"

namespace longtune {

/// What training keeps in host memory and brings to the device when it is at work on it: slower
/// where the two are apart, and no bit differs.
struct Offload {
  bool inputs = false;   ///< each layer's input, from the forward pass to the backward pass
  bool moments = false;  ///< AdamW's

  [[nodiscard]] bool operator==(const Offload&) const = default;
};

/// What training keeps of the forward pass for the backward pass, besides each layer's input, so as
/// not to compute it again. Costs memory, saves time, and no bit differs.
struct Kept {
  bool attention = false;           ///< attention's outputs, of every layer
  std::int64_t product_layers = 0;  ///< the outputs of attention and of linear layers, of so many
                                    ///< layers, the last ones

  [[nodiscard]] bool operator==(const Kept&) const = default;
};

/// How a model is held and computed, whatever is done with it.
struct ModelOptions {
  BaseWeights base = BaseWeights::kFile;
  DType activations = DType::kBf16;
  DType kv = DType::kBf16;  ///< kF32, kBf16, or kI8 for what leaves the device
  AttentionOptions attention;
  RopeChoice rope;  ///< instead of the RoPE scaling of the model's file
  /// Where keys and values of earlier segments are kept; none: dense attention has them on the
  /// device, routed attention in host memory.
  std::optional<KvTiers> kv_tiers;
};

}  // namespace longtune
