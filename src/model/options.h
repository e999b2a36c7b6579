#pragma once

#include "attention/options.h"
#include "model/weights.h"
#include "tensor/tensor_view.h"

namespace longtune {

/// How a model is held and computed, whatever is done with it.
struct ModelOptions {
  BaseWeights base = BaseWeights::kFile;
  DType activations = DType::kBf16;
  DType kv = DType::kBf16;
  AttentionOptions attention;
};

}  // namespace longtune
