#pragma once

#include "tensor/tensor_view.h"

namespace longtune::ops {

/// A page of keys and values in int8: the 2 * Hkv * 64 rows of D values of a page of bf16 in the
/// same order, then a scale for each row, so for each token, KV head, and keys and values apart.
///
///     scale[r] = max_d |x[r, d]| / 127        q[r, d] = round(x[r, d] / scale[r])
///
/// in f32, halves to the even neighbour, at most 127 in size. A row of zeros has the scale 0. A row
/// with a value that is not finite has the scale NaN, and is NaN when it is read again.
struct KvQuantise {
  TensorView page;    ///< (kv_page_bytes(Hkv, D, kI8)) int8
  ConstTensorView x;  ///< (2 * Hkv * 64, D) bf16
};

/// Throws Error kInvalidArgument where shapes or dtypes disagree.
void kv_quantise(const KvQuantise& args);

/// What such a page reads as: y[r, d] = q[r, d] * scale[r], the product in f32, rounded to bf16. It
/// differs from x by at most half a scale and the rounding.
struct KvDequantise {
  TensorView y;          ///< (2 * Hkv * 64, D) bf16
  ConstTensorView page;  ///< (kv_page_bytes(Hkv, D, kI8)) int8
};

/// Throws Error kInvalidArgument where shapes or dtypes disagree.
void kv_dequantise(const KvDequantise& args);

namespace ref {
void kv_quantise(const KvQuantise& args);
void kv_dequantise(const KvDequantise& args);
}  // namespace ref

namespace cpu {
void kv_quantise(const KvQuantise& args);
void kv_dequantise(const KvDequantise& args);
}  // namespace cpu

}  // namespace longtune::ops
