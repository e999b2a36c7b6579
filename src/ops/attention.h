#pragma once

#include "ops/kv_pages.h"
#include "ops/selection.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Kernels keep a tile's rows in scratch memory of this many values a row.
constexpr std::int64_t kMaxHeadDimension = 256;

/// Exact causal attention with grouped queries (arXiv:2305.13245) in flash-style tiles
/// (arXiv:2205.14135); the score matrix never exists as a whole. Query t stands at position
/// first_position + t and sees those of the tokens [0, first_position + t] that `selection` names,
/// which sums below run over; head h reads KV head h / (Hq / Hkv).
///
///     s[h, t, j] = scale * q[t, h] . k[j]      lse[t, h] = log(sum_j exp(s[h, t, j]))
///     out[t, h]  = sum_j exp(s[h, t, j] - lse[t, h]) * v[j]
struct AttentionForward {
  TensorView out;     ///< (T, Hq, D) f32 or bf16
  TensorView lse;     ///< (T, Hq) f32; kept for the backward pass
  ConstTensorView q;  ///< (T, Hq, D), rotated, dtype of out
  KvPages kv;         ///< kv.tokens >= first_position + T; pages that no query sees may be null
  std::int64_t first_position = 0;
  float scale = 1;  ///< 1 / sqrt(D); finite and above 0
  Selection selection;
};

/// The softmax state and all sums are f32. Where the instruction set has products of bf16, q and
/// the pages are bf16 and D is a multiple of 16, the exponentials are rounded to bf16 (2^-9,
/// relatively) before they weigh values, though not in lse; the backward pass likewise rounds p and
/// ds. Key tiles are visited in the order of the selection, whole pages at a time, then up to 64
/// tokens of groups, and a tile in which a row sees nothing leaves its state untouched: a row's
/// bits depend neither on the thread count, nor on how many rows are computed with it, nor on its
/// place among them. Throws Error: kInvalidArgument where shapes or dtypes disagree; kUnsupported
/// without a kernel.
void attention_forward(const AttentionForward& args);

/// Gradients of queries and of the live keys and values, those from `live_begin` on; earlier ones
/// are detached history, which counts for dq only. Where pages are rounded as they close, the
/// gradient of what was rounded counts as that of what was appended (straight through).
///
///     delta[t, h] = sum_d dout[t, h, d] * out[t, h, d]
///
///     p[h, t, j]  = exp(s[h, t, j] - lse[t, h])
///
///     ds = p * (dout . v - delta)    dq = scale * ds k    dk = scale * ds^T q    dv = p^T dout
///
/// A pass may be cut into calls at multiples of 64 positions or, where groups are listed, of
/// block_queries, from the last queries to the first: the first call begins the gradients of keys
/// and values, the last one ends them, and no bit depends on the cuts.
struct AttentionBackward {
  TensorView dq;  ///< (T, Hq, D), dtype of q, overwritten; may not be q
  TensorView dk;  ///< (live, Hkv, D) f32: of the tokens from live_begin on, of which there are at
                  ///< least first_position + T - live_begin
  TensorView dv;  ///< (live, Hkv, D) f32
  TensorView delta;      ///< (T, Hq) f32, scratch
  TensorView group_dk;   ///< as dk, scratch; where groups are listed
  TensorView group_dv;   ///< as dv, likewise
  ConstTensorView dout;  ///< (T, Hq, D), dtype of q
  ConstTensorView out;   ///< (T, Hq, D), as written by the forward pass
  ConstTensorView lse;   ///< (T, Hq), as written by the forward pass
  ConstTensorView q;     ///< (T, Hq, D) f32 or bf16
  KvPages kv;
  std::int64_t first_position = 0;
  bool begins = true;           ///< dk, dv, group_dk and group_dv are overwritten, else added to
  bool ends = true;             ///< the groups' part joins dk and dv
  std::int64_t live_begin = 0;  ///< multiple of 64, at most first_position
  float scale = 1;
  Selection selection;  ///< as in the forward pass
};

/// Every sum runs in an order that the shapes fix, so the thread count changes no bit. Errors as in
/// attention_forward.
void attention_backward(const AttentionBackward& args);

/// How much attention each token received, from what the forward pass left, without the weights
/// ever being stored: the mean over the query heads of a KV head, summed over the queries of
/// `rows`.
///
///     sums[kv, j] = Hkv / Hq * sum_{t in rows, h of kv} exp(s[h, t, j] - lse[t, h])
struct AttentionColumnSums {
  TensorView sums;      ///< (Hkv, first_position + T) f32, overwritten
  ConstTensorView q;    ///< (T, Hq, D) f32 or bf16
  ConstTensorView lse;  ///< (T, Hq), as written by the forward pass
  KvPages kv;
  std::int64_t first_position = 0;
  float scale = 1;
  std::int64_t first_row = 0;  ///< queries [first_row, end_row) count
  std::int64_t end_row = 0;
};

/// Of dense attention. Every sum runs in an order that the shapes fix. Throws as attention_forward.
void attention_column_sums(const AttentionColumnSums& args);

namespace ref {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
void attention_column_sums(const AttentionColumnSums& args);
}  // namespace ref

namespace cpu {
void attention_forward(const AttentionForward& args);
void attention_backward(const AttentionBackward& args);
void attention_column_sums(const AttentionColumnSums& args);
}  // namespace cpu

}  // namespace longtune::ops
