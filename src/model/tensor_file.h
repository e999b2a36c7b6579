#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune {

/// The format of values of a safetensors dtype: "F32", "F16" and "BF16" have one.
[[nodiscard]] std::optional<WeightFormat> float_format(std::string_view dtype);

/// A tensor on the device under its name in a safetensors file.
struct NamedTensor {
  std::string name;
  TensorView tensor;  ///< f32
};

/// Writes a safetensors file of f32 tensors, a few MiB at a time; complete or absent. Throws Error
/// kIo.
void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// Fills the tensors from a safetensors file that holds just them: f32, f16 or bf16 values are
/// widened. Throws Error kBadInput, naming file and tensor, where one is missing, left over, of
/// another shape or dtype.
void load_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace longtune
