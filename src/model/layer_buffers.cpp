#include "model/layer.h"

namespace longtune {
namespace {

constexpr const char* kPurpose = "layer workspace";

// The first T of the tokens that the buffer was taken for, in the leading dimension.
void shorten(TensorView& view, std::int64_t T, std::int64_t rows_per_token = 1) {
  if (view) {
    view.shape[0] = T * rows_per_token;
  }
}

}  // namespace

LayerActivations::LayerActivations(const ModelConfig& model,
                                   const LoraConfig* lora,
                                   DType dtype,
                                   std::int64_t T,
                                   LayerAttention attention,
                                   Arena& arena) {
  const auto [C, F, Hq, Hkv, D] = std::array{model.C, model.F, model.Hq, model.Hkv, model.D};
  h1 = arena.take(kPurpose, dtype, {T, C});
  rstd1 = arena.take(kPurpose, DType::kF32, {T});
  q = arena.take(kPurpose, dtype, {T, Hq, D});
  k = arena.take(kPurpose, dtype, {T, Hkv, D});
  q_raw = q;
  k_raw = k;
  if (model.qk_norm) {
    q_raw = arena.take(kPurpose, dtype, {T, Hq, D});
    k_raw = arena.take(kPurpose, dtype, {T, Hkv, D});
    rstd_q = arena.take(kPurpose, DType::kF32, {T * Hq});
    rstd_k = arena.take(kPurpose, DType::kF32, {T * Hkv});
  }
  v = arena.take(kPurpose, dtype, {T, Hkv, D});
  if (attention == LayerAttention::kRecomputed) {
    out = arena.take(kPurpose, dtype, {T, Hq, D});
    lse = arena.take(kPurpose, DType::kF32, {T, Hq});
  }
  x2 = arena.take(kPurpose, dtype, {T, C});
  h2 = arena.take(kPurpose, dtype, {T, C});
  rstd2 = arena.take(kPurpose, DType::kF32, {T});
  gate = arena.take(kPurpose, dtype, {T, F});
  up = arena.take(kPurpose, dtype, {T, F});
  s = arena.take(kPurpose, dtype, {T, F});
  for (int kind = 0; lora != nullptr && kind < kLinearKinds; ++kind) {
    if (lora->targets[kind]) {
      u[kind] = arena.take(kPurpose, DType::kF32, {T, lora->rank});
    }
  }
}

LayerActivations LayerActivations::first(std::int64_t T) const {
  LayerActivations part = *this;
  for (TensorView* view : {&part.h1,
                           &part.rstd1,
                           &part.q_raw,
                           &part.k_raw,
                           &part.q,
                           &part.k,
                           &part.v,
                           &part.out,
                           &part.x2,
                           &part.h2,
                           &part.rstd2,
                           &part.gate,
                           &part.up,
                           &part.s}) {
    shorten(*view, T);
  }
  shorten(part.rstd_q, T, q.dim(1));
  shorten(part.rstd_k, T, k.dim(1));
  shorten(part.lse, T);
  for (TensorView& view : part.u) {
    shorten(view, T);
  }
  return part;
}

LayerGradients::LayerGradients(const ModelConfig& model,
                               const LoraConfig* lora,
                               DType dtype,
                               std::int64_t T,
                               AttentionKind attention_kind,
                               Arena& arena) {
  const auto [Hq, Hkv, D] = std::array{model.Hq, model.Hkv, model.D};
  dh = arena.take(kPurpose, dtype, {T, model.C});
  if (lora != nullptr) {
    du = arena.take(kPurpose, DType::kF32, {T, lora->rank});
  }
  {
    const Arena::Scope mlp(arena);
    ds = arena.take(kPurpose, dtype, {T, model.F});
  }
  const Arena::Scope attention(arena);
  dout = arena.take(kPurpose, dtype, {T, Hq, D});
  dq = arena.take(kPurpose, dtype, {T, Hq, D});
  dk_sum = arena.take(kPurpose, DType::kF32, {T, Hkv, D});
  dv_sum = arena.take(kPurpose, DType::kF32, {T, Hkv, D});
  if (attention_kind == AttentionKind::kHga) {
    group_dk = arena.take(kPurpose, DType::kF32, {T, Hkv, D});
    group_dv = arena.take(kPurpose, DType::kF32, {T, Hkv, D});
  }
  dk = dk_sum;
  dv = dv_sum;
  if (dtype != DType::kF32) {
    dk = arena.take(kPurpose, dtype, {T, Hkv, D});
    dv = arena.take(kPurpose, dtype, {T, Hkv, D});
  }
  delta = arena.take(kPurpose, DType::kF32, {T, Hq});
}

LayerGradients LayerGradients::first(std::int64_t T) const {
  LayerGradients part = *this;
  for (TensorView* view : {&part.dh,
                           &part.du,
                           &part.ds,
                           &part.dout,
                           &part.dq,
                           &part.dk_sum,
                           &part.dv_sum,
                           &part.group_dk,
                           &part.group_dv,
                           &part.dk,
                           &part.dv,
                           &part.delta}) {
    shorten(*view, T);
  }
  return part;
}

}  // namespace longtune
