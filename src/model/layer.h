#pragma once

#include <array>

#include "attention/routed_attention.h"
#include "device/arena.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/weights.h"
#include "ops/kv_pages.h"

namespace longtune {

/// A run of consecutive tokens of one sequence, on its way through the layers: the columns of the
/// grid of (layer, cell) steps.
struct Cell {
  std::int64_t tokens = 0;  ///< T
  std::int64_t first_position = 0;
  ConstTensorView cos;  ///< (T, D/2) f32, of the cell's positions
  ConstTensorView sin;  ///< (T, D/2) f32
};

/// One step of the grid: what a layer's forward and backward both read.
struct LayerStep {
  const ModelConfig* model = nullptr;
  const LayerWeights* weights = nullptr;
  const Adapter* adapter = nullptr;  ///< null: the base model alone
  std::int64_t layer = 0;
  Cell cell;
  ops::KvPages kv;  ///< of this layer; earlier tokens are history, the cell's own are written
  RoutedAttention* routed = nullptr;  ///< null: dense attention over kv
  double dropout = 0;
  std::uint64_t dropout_key = 0;  ///< of this sample; the same when the layer is recomputed
};

/// Whether buffers are for reading only or for training as well.
enum class ModelUse : std::uint8_t { kInference, kTraining };

/// What of a layer's forward pass is there still when it is recomputed; each adds to the one
/// before.
enum class LayerKept : std::uint8_t {
  kInput,      ///< the layer's input alone
  kAttention,  ///< and attention's output: out, lse
  kProducts,   ///< and what linear layers and the adapter gave: q_raw, k_raw, v, x2, gate, up, u
};

/// Room for what one layer keeps; no buffers of what it does not.
struct KeptActivations {
  TensorView out;
  TensorView lse;
  TensorView q_raw;  ///< rotated where the model has no q norm
  TensorView k_raw;  ///< likewise
  TensorView v;
  TensorView x2;
  TensorView gate;
  TensorView up;
  std::array<TensorView, kLinearKinds> u;

  KeptActivations(const ModelConfig& model,
                  const LoraConfig* lora,
                  DType dtype,
                  std::int64_t T,
                  LayerKept kept,
                  Arena& arena);
};

/// What a layer computes between its input and its output, for one cell. Training keeps these from
/// the recomputed forward to the backward pass; there is one set for all layers.
struct LayerActivations {
  TensorView h1;      ///< (T, C) after the attention norm
  TensorView rstd1;   ///< (T)
  TensorView q_raw;   ///< (T, Hq, D) before q norm; is q where the model has none
  TensorView k_raw;   ///< (T, Hkv, D) before k norm; is k where the model has none
  TensorView rstd_q;  ///< (T * Hq), q norm
  TensorView rstd_k;  ///< (T * Hkv), k norm
  TensorView q;       ///< (T, Hq, D) rotated
  TensorView k;       ///< (T, Hkv, D) rotated
  TensorView v;       ///< (T, Hkv, D)
  TensorView out;     ///< (T, Hq, D) attention
  TensorView lse;     ///< (T, Hq) f32
  TensorView x2;      ///< (T, C) after attention and its residual
  TensorView h2;      ///< (T, C) after the MLP norm
  TensorView rstd2;   ///< (T)
  TensorView gate;    ///< (T, F)
  TensorView up;      ///< (T, F)
  TensorView s;       ///< (T, F) SwiGLU
  std::array<TensorView, kLinearKinds> u;  ///< (T, R) f32, of targeted layers

  /// Takes room for T tokens, but for what every layer keeps. `lora`: null without adapter.
  LayerActivations(const ModelConfig& model,
                   const LoraConfig* lora,
                   DType dtype,
                   std::int64_t T,
                   LayerKept kept,
                   Arena& arena);

  /// The same buffers, but for those that `kept` has.
  [[nodiscard]] LayerActivations with(const KeptActivations& kept) const;

  /// The same buffers for `T` tokens, at most as many as taken.
  [[nodiscard]] LayerActivations first(std::int64_t T) const;
};

/// Scratch of a layer's backward pass; parts whose lifetimes do not meet share memory.
struct LayerGradients {
  TensorView dh;        ///< (T, C) of h2, later of h1
  TensorView ds;        ///< (T, F)
  TensorView dout;      ///< (T, Hq, D)
  TensorView dq;        ///< (T, Hq, D)
  TensorView dk_sum;    ///< (T, Hkv, D) f32
  TensorView dv_sum;    ///< (T, Hkv, D) f32
  TensorView group_dk;  ///< (T, Hkv, D) f32, where groups are routed to
  TensorView group_dv;  ///< (T, Hkv, D) f32, likewise
  TensorView dk;        ///< (T, Hkv, D); is dk_sum in f32
  TensorView dv;        ///< (T, Hkv, D); is dv_sum in f32
  TensorView delta;     ///< (T, Hq) f32
  TensorView du;        ///< (T, R) f32

  LayerGradients(const ModelConfig& model,
                 const LoraConfig* lora,
                 DType dtype,
                 std::int64_t T,
                 AttentionKind attention,
                 Arena& arena);
  [[nodiscard]] LayerGradients first(std::int64_t T) const;
};

/// A decoder block: y = x2 + mlp(norm(x2)), x2 = x + attention(norm(x)). Writes the cell's keys and
/// values to step.kv and fills `activations`.
void layer_forward(const LayerStep& step,
                   const ConstTensorView& x,
                   const TensorView& y,
                   const LayerActivations& activations);

/// Fills `activations` as layer_forward did, bit for bit, without the output and what is kept.
void layer_recompute(const LayerStep& step,
                     const ConstTensorView& x,
                     const LayerActivations& activations,
                     LayerKept kept);

/// What is wanted of a layer's backward pass.
enum class LayerGradient : std::uint8_t {
  kAll,
  kAdapterOnly,  ///< the first layer's: nothing trainable lies before it
};

/// Back-propagates through a block after layer_recompute, whose activations it overwrites. `dx`
/// holds the gradient of the output and receives that of the input (undefined with kAdapterOnly);
/// the adapter's gradients are added to. Keys and values of the cell are live, earlier ones
/// detached.
void layer_backward(const LayerStep& step,
                    const ConstTensorView& x,
                    const TensorView& dx,
                    const LayerActivations& activations,
                    const LayerGradients& gradients,
                    LayerGradient wanted);

}  // namespace longtune
