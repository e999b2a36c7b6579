#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Tokens of one page of keys and values. A chunk of HGA is one page or two.
constexpr std::int64_t kPageTokens = 64;

/// Keys and values of one layer, in pages. Page p holds tokens [p * 64, p * 64 + 64): keys
/// (Hkv, 64, D), rotated, then values (Hkv, 64, D), both in `dtype`; so the keys of one KV head and
/// page are one contiguous tile. The tables of page pointers lie on the host.
///
/// Keys and values that are rounded when their page closes, which is when it is full, have two
/// forms while it is at work: a query reads its own page as it was appended and every other page as
/// it closed, whether that was long ago or in this cell, so that no bit depends on where cells end.
struct KvPages {
  std::byte* const* pages = nullptr;   ///< one pointer a page, as appended
  std::byte* const* closed = nullptr;  ///< the same, as closed; null: closing rounds nothing
  std::int64_t tokens = 0;             ///< tokens that hold data, from position 0
  std::int64_t Hkv = 0;
  std::int64_t D = 0;
  DType dtype = DType::kBf16;

  [[nodiscard]] std::int64_t head_bytes() const { return kPageTokens * D * size_of(dtype); }

  /// (64, D) keys or values of `head` in `page`, as appended.
  [[nodiscard]] std::byte* keys(std::int64_t page, std::int64_t head) const {
    return pages[page] + head * head_bytes();
  }

  [[nodiscard]] std::byte* values(std::int64_t page, std::int64_t head) const {
    return pages[page] + (Hkv + head) * head_bytes();
  }

  /// Whether a query in `query_page` reads `page` as it was appended.
  [[nodiscard]] static bool is_own_page(std::int64_t query_page, std::int64_t page) {
    return page == query_page;
  }

  /// The pages as closed alone.
  [[nodiscard]] KvPages as_closed() const {
    KvPages result = *this;
    result.pages = closed != nullptr ? closed : pages;
    return result;
  }

  /// The pages in the form in which a query in `query_page` reads `page`.
  [[nodiscard]] KvPages as_read_from(std::int64_t query_page, std::int64_t page) const {
    return is_own_page(query_page, page) ? *this : as_closed();
  }
};

/// Bytes of one page of one layer; of int8 with the scales: see KvQuantise.
[[nodiscard]] constexpr std::int64_t kv_page_bytes(std::int64_t Hkv, std::int64_t D, DType dtype) {
  const std::int64_t scale = dtype == DType::kI8 ? size_of(DType::kF32) : 0;
  return 2 * Hkv * kPageTokens * (D * size_of(dtype) + scale);
}

/// What pages hold where kernels read and write them.
[[nodiscard]] constexpr DType kv_device_dtype(DType kv) {
  return kv == DType::kI8 ? DType::kBf16 : kv;
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
