#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "base/half.h"

namespace longtune {

enum class DType : std::uint8_t { kF32, kBf16, kI32, kI8 };
enum class DeviceKind : std::uint8_t { kCpu, kCuda };

[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
  return dtype == DType::kI8 ? 1 : dtype == DType::kBf16 ? 2 : 4;
}

/// "f32", "bf16", "i32", "int8".
[[nodiscard]] const char* name_of(DType dtype);

/// A contiguous, non-owning view of up to four dimensions: trivially copyable, passed by value.
/// Without data and of rank 0 it stands for an argument that is not given. A view made while
/// planning has a shape but no data.
template <class Byte>
struct BasicTensorView {
  Byte* data = nullptr;
  std::array<std::int64_t, 4> shape{};
  int rank = 0;
  DType dtype = DType::kF32;
  DeviceKind device = DeviceKind::kCpu;

  /// Whether the argument is given at all.
  explicit operator bool() const { return rank > 0; }

  [[nodiscard]] std::int64_t dim(int axis) const { return shape.at(axis < 0 ? rank + axis : axis); }

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    for (int axis = 0; axis < rank; ++axis) {
      count *= shape[axis];
    }
    return count;
  }

  [[nodiscard]] std::int64_t bytes() const { return elements() * size_of(dtype); }

  /// The elements as T; for kernels, which know the dtype they were dispatched on.
  template <class T>
  [[nodiscard]] auto* as() const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Element*>(data);
  }

  /// Rows [first, first + count) of the leading dimension.
  [[nodiscard]] BasicTensorView rows(std::int64_t first, std::int64_t count) const {
    BasicTensorView result = *this;
    const std::int64_t row_bytes = shape[0] == 0 ? 0 : bytes() / shape[0];
    result.data = data == nullptr ? nullptr : data + first * row_bytes;
    result.shape[0] = count;
    return result;
  }

  /// The same elements under another shape of as many elements.
  [[nodiscard]] BasicTensorView reshaped(std::initializer_list<std::int64_t> dims) const {
    BasicTensorView result = *this;
    result.rank = 0;
    result.shape = {};
    for (const std::int64_t dim : dims) {
      result.shape.at(result.rank++) = dim;
    }
    return result;
  }

  operator BasicTensorView<const std::byte>() const { return {data, shape, rank, dtype, device}; }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

/// "bf16 (2, 64, 768)"; for messages only.
[[nodiscard]] std::string describe(const ConstTensorView& view);

[[nodiscard]] bool same_shape(const ConstTensorView& a, const ConstTensorView& b);

/// Calls `body` with a null pointer of the element type that `dtype` names (float or BFloat16): the
/// one way in which kernels are chosen by dtype. Other dtypes are a fault of the caller's checks.
template <class Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
  return dtype == DType::kBf16 ? body(static_cast<BFloat16*>(nullptr))
                               : body(static_cast<float*>(nullptr));
}

/// Views of host memory.
[[nodiscard]] TensorView view(std::vector<float>& values,
                              std::initializer_list<std::int64_t> shape);
[[nodiscard]] ConstTensorView view(const std::vector<float>& values,
                                   std::initializer_list<std::int64_t> shape);
[[nodiscard]] TensorView view(std::vector<BFloat16>& values,
                              std::initializer_list<std::int64_t> shape);
[[nodiscard]] ConstTensorView view(const std::vector<BFloat16>& values,
                                   std::initializer_list<std::int64_t> shape);
[[nodiscard]] ConstTensorView view(const std::vector<std::int32_t>& values,
                                   std::initializer_list<std::int64_t> shape);

}  // namespace longtune
