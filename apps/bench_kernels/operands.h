#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::bench {

/// Zeroed memory, in large pages where the system gives them, as the arena's. Copies are memory of
/// their own.
class Bytes {
 public:
  /// Throws std::bad_alloc.
  explicit Bytes(std::int64_t size);
  Bytes(const Bytes& other);
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() = default;

  [[nodiscard]] std::byte* data() { return memory_.get(); }

  [[nodiscard]] const std::byte* data() const { return memory_.get(); }

 private:
  std::int64_t size_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

/// f32 or bf16 values between -1 and 1.
class Values {
 public:
  Values(DType dtype, std::int64_t count, std::uint64_t seed);

  [[nodiscard]] TensorView shaped(std::initializer_list<std::int64_t> shape);

  [[nodiscard]] std::byte* data() { return memory_.data(); }

 private:
  Bytes memory_;
  DType dtype_;
};

/// A matrix of reasonable values, the same in every row, in any format, held as models hold theirs:
/// in panels.
class Weight {
 public:
  Weight(WeightFormat format, std::int64_t N, std::int64_t K);

  [[nodiscard]] WeightView view() const;

 private:
  void fill_nf4();
  void fill_rows();

  WeightFormat format_;
  std::int64_t N_;
  std::int64_t K_;
  Bytes memory_;
  float nested_offset_ = 0;  // of NF4
  WeightOrder order_ = WeightOrder::kRows;
};

}  // namespace longtune::bench
