#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/source.h"

namespace longtune {

/// A tensor that an architecture needs, by its Hugging Face name.
struct TensorSpec {
  std::string name;
  std::int64_t N = 0;  ///< rows; 1 for a vector
  std::int64_t K = 0;
  bool is_vector = false;
};

/// All tensors that `config`, which has passed check(), needs; sorted by name.
[[nodiscard]] std::vector<TensorSpec> needed_tensors(const ModelConfig& config);

/// A tensor as a file holds it, on its way to being admitted.
struct FoundTensor {
  std::string file;                 ///< for messages
  std::string name;                 ///< as the file spells it
  std::vector<std::int64_t> shape;  ///< outermost first
  WeightFormat format = WeightFormat::kF32;
};

/// Throws Error: kBadInput where the shape is another than needed (the embedding's and the head's
/// rows: a vocabulary mismatch), kUnsupported for a vector in blocks.
[[nodiscard]] SourceTensor admit(const TensorSpec& spec, const FoundTensor& found);

}  // namespace longtune
