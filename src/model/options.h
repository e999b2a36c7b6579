#pragma once

#include <optional>

#include "attention/options.h"
#include "kv/tiered_store.h"
#include "model/weights.h"
#include "tensor/tensor_view.h"

namespace longtune {

/// How a model is held and computed, whatever is done with it.
struct ModelOptions {
  BaseWeights base = BaseWeights::kFile;
  DType activations = DType::kBf16;
  DType kv = DType::kBf16;
  AttentionOptions attention;
  /// Where keys and values of earlier segments are kept; none: dense attention has them on the
  /// device, routed attention in host memory.
  std::optional<KvTiers> kv_tiers;
};

}  // namespace longtune
