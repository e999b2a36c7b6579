#pragma once

#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Marks a position whose next token is not a target.
constexpr std::int32_t kNoTarget = -100;

/// Output head and cross-entropy, a few tokens at a time, so that logits of the whole segment never
/// exist; with the gradient of the head's input in the same pass.
///
///     logits[t] = W x[t]      losses[t] = log(sum_v exp(logits[t, v])) - logits[t, targets[t]]
///     dx[t]     = grad_scale * W^T (softmax(logits[t]) - onehot(targets[t]))
///
/// A position without target has loss 0 and gradient 0.
struct HeadLoss {
  TensorView losses;  ///< (T) f32, in nats
  TensorView dx;      ///< (T, C), dtype of x, overwritten; optional: without it no gradient is made
  TensorView logits;  ///< (tile, V) f32, scratch; tile > 0 tokens are worked on at a time
  ConstTensorView x;  ///< (T, C) f32 or bf16, after the final norm
  ConstTensorView targets;  ///< (T) i32, kNoTarget or in [0, V)
  WeightView weight;        ///< (V, C)
  float grad_scale = 1;     ///< 1 / number of targets in the whole optimiser step
};

/// Results do not depend on the tile or the thread count. Throws Error kInvalidArgument where
/// shapes or dtypes disagree or a target is outside the vocabulary.
void head_loss(const HeadLoss& args);

namespace ref {
void head_loss(const HeadLoss& args);
}  // namespace ref

namespace cpu {
void head_loss(const HeadLoss& args);
}  // namespace cpu

}  // namespace longtune::ops
