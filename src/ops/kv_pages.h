#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Tokens of one page of keys and values. A chunk of HGA is one page or two.
constexpr std::int64_t kPageTokens = 64;

/// Keys and values of one layer, in pages. Page p holds tokens [p * 64, p * 64 + 64): keys
/// (Hkv, 64, D), rotated, then values (Hkv, 64, D), both in `dtype`; so the keys of one KV head and
/// page are one contiguous tile. The table of page pointers lies on the host.
struct KvPages {
  std::byte* const* pages = nullptr;  ///< one pointer a page
  std::int64_t tokens = 0;            ///< tokens that hold data, from position 0
  std::int64_t Hkv = 0;
  std::int64_t D = 0;
  DType dtype = DType::kBf16;

  [[nodiscard]] std::int64_t head_bytes() const { return kPageTokens * D * size_of(dtype); }

  /// (64, D) keys or values of `head` in `page`.
  [[nodiscard]] std::byte* keys(std::int64_t page, std::int64_t head) const {
    return pages[page] + head * head_bytes();
  }

  [[nodiscard]] std::byte* values(std::int64_t page, std::int64_t head) const {
    return pages[page] + (Hkv + head) * head_bytes();
  }
};

/// Bytes of one page of one layer.
[[nodiscard]] constexpr std::int64_t kv_page_bytes(std::int64_t Hkv, std::int64_t D, DType dtype) {
  return 2 * Hkv * kPageTokens * D * size_of(dtype);
}

/// Writes rows to positions [first_position, first_position + T) of the pages, rounding to their
/// dtype.
struct KvAppend {
  KvPages kv;         ///< pages allocated up to first_position + T; `tokens` is not looked at
  ConstTensorView k;  ///< (T, Hkv, D) f32 or bf16, rotated
  ConstTensorView v;  ///< (T, Hkv, D), dtype of k
  std::int64_t first_position = 0;
};

/// Throws Error kInvalidArgument where shapes or dtypes disagree.
void kv_append(const KvAppend& args);

namespace ref {
void kv_append(const KvAppend& args);
}  // namespace ref

namespace cpu {
void kv_append(const KvAppend& args);
}  // namespace cpu

}  // namespace longtune::ops
