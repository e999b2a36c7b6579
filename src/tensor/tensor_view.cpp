#include "tensor/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace longtune {
namespace {

template <class View, class Values>
View view_of(Values& values, DType dtype, std::initializer_list<std::int64_t> shape) {
  View result{.rank = static_cast<int>(shape.size()), .dtype = dtype};
  result.data = reinterpret_cast<decltype(result.data)>(values.data());
  std::copy(shape.begin(), shape.end(), result.shape.begin());
  return result;
}

}  // namespace

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI8:
      return "int8";
  }
  return "?";
}

std::string describe(const ConstTensorView& view) {
  const std::span dims(view.shape.data(), static_cast<std::size_t>(view.rank));
  return fmt::format("{} ({})", name_of(view.dtype), fmt::join(dims, ", "));
}

bool same_shape(const ConstTensorView& a, const ConstTensorView& b) {
  return a.rank == b.rank && std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

TensorView view(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
  return view_of<TensorView>(values, DType::kF32, shape);
}

ConstTensorView view(const std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
  return view_of<ConstTensorView>(values, DType::kF32, shape);
}

TensorView view(std::vector<BFloat16>& values, std::initializer_list<std::int64_t> shape) {
  return view_of<TensorView>(values, DType::kBf16, shape);
}

ConstTensorView view(const std::vector<BFloat16>& values,
                     std::initializer_list<std::int64_t> shape) {
  return view_of<ConstTensorView>(values, DType::kBf16, shape);
}

ConstTensorView view(const std::vector<std::int32_t>& values,
                     std::initializer_list<std::int64_t> shape) {
  return view_of<ConstTensorView>(values, DType::kI32, shape);
}

}  // namespace longtune
