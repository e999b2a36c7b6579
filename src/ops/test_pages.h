#pragma once

#include <cstring>
#include <vector>

#include "ops/kv_pages.h"

namespace longtune::ops {

/// Pages of host memory, filled with bytes that read as NaN, so that a kernel which reads a token
/// that was never written shows it.
class TestPages {
 public:
  struct Shape {
    std::int64_t tokens = 0;
    std::int64_t Hkv = 1;
    std::int64_t D = 0;
    DType dtype = DType::kF32;
  };

  explicit TestPages(const Shape& shape) : shape_(shape) {
    const std::int64_t page = kv_page_bytes(shape.Hkv, shape.D, shape.dtype);
    const std::int64_t count = (shape.tokens + kPageTokens - 1) / kPageTokens;
    memory_.assign(static_cast<std::size_t>(page * count), std::byte{0xFF});
    for (std::int64_t p = 0; p < count; ++p) {
      table_.push_back(memory_.data() + p * page);
    }
  }

  TestPages(const TestPages&) = delete;
  TestPages& operator=(const TestPages&) = delete;
  ~TestPages() = default;

  [[nodiscard]] KvPages pages() const {
    return {.pages = table_.data(),
            .tokens = shape_.tokens,
            .Hkv = shape_.Hkv,
            .D = shape_.D,
            .dtype = shape_.dtype};
  }

  [[nodiscard]] const std::vector<std::byte>& memory() const { return memory_; }

 private:
  Shape shape_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> table_;
};

}  // namespace longtune::ops
