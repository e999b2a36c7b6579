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

// The adapter's first products of targeted layers.
void take_products(const LoraConfig* lora,
                   std::int64_t T,
                   const char* purpose,
                   Arena& arena,
                   std::array<TensorView, kLinearKinds>& u) {
  for (int kind = 0; lora != nullptr && kind < kLinearKinds; ++kind) {
    if (lora->targets[kind]) {
      u[kind] = arena.take(purpose, DType::kF32, {T, lora->rank});
    }
  }
}

void replace(TensorView& view, const TensorView& other) {
  if (other) {
    view = other;
  }
}

}  // namespace

KeptActivations::KeptActivations(const ModelConfig& model,
                                 const LoraConfig* lora,
                                 DType dtype,
                                 std::int64_t T,
                                 LayerKept kept,
                                 Arena& arena) {
  const auto [C, F, Hq, Hkv, D] = std::array{model.C, model.F, model.Hq, model.Hkv, model.D};
  if (kept == LayerKept::kInput) {
    return;
  }
  out = arena.take("attention outputs", dtype, {T, Hq, D});
  lse = arena.take("attention outputs", DType::kF32, {T, Hq});
  if (kept == LayerKept::kAttention) {
    return;
  }
  constexpr const char* kProducts = "linear outputs";
  q_raw = arena.take(kProducts, dtype, {T, Hq, D});
  k_raw = arena.take(kProducts, dtype, {T, Hkv, D});
  v = arena.take(kProducts, dtype, {T, Hkv, D});
  x2 = arena.take(kProducts, dtype, {T, C});
  gate = arena.take(kProducts, dtype, {T, F});
  up = arena.take(kProducts, dtype, {T, F});
  take_products(lora, T, kProducts, arena, u);
}

LayerActivations::LayerActivations(const ModelConfig& model,
                                   const LoraConfig* lora,
                                   DType dtype,
                                   std::int64_t T,
                                   LayerKept kept,
                                   Arena& arena) {
  const bool takes_products = kept != LayerKept::kProducts;
  const auto [C, F, Hq, Hkv, D] = std::array{model.C, model.F, model.Hq, model.Hkv, model.D};
  h1 = arena.take(kPurpose, dtype, {T, C});
  rstd1 = arena.take(kPurpose, DType::kF32, {T});
  if (takes_products || model.qk_norm) {
    q = arena.take(kPurpose, dtype, {T, Hq, D});
    k = arena.take(kPurpose, dtype, {T, Hkv, D});
  }
  q_raw = q;
  k_raw = k;
  if (model.qk_norm) {
    q_raw = takes_products ? arena.take(kPurpose, dtype, {T, Hq, D}) : TensorView{};
    k_raw = takes_products ? arena.take(kPurpose, dtype, {T, Hkv, D}) : TensorView{};
    rstd_q = arena.take(kPurpose, DType::kF32, {T * Hq});
    rstd_k = arena.take(kPurpose, DType::kF32, {T * Hkv});
  }
  if (kept == LayerKept::kInput) {
    out = arena.take(kPurpose, dtype, {T, Hq, D});
    lse = arena.take(kPurpose, DType::kF32, {T, Hq});
  }
  h2 = arena.take(kPurpose, dtype, {T, C});
  rstd2 = arena.take(kPurpose, DType::kF32, {T});
  s = arena.take(kPurpose, dtype, {T, F});
  if (takes_products) {
    v = arena.take(kPurpose, dtype, {T, Hkv, D});
    x2 = arena.take(kPurpose, dtype, {T, C});
    gate = arena.take(kPurpose, dtype, {T, F});
    up = arena.take(kPurpose, dtype, {T, F});
    take_products(lora, T, kPurpose, arena, u);
  }
}

LayerActivations LayerActivations::with(const KeptActivations& kept) const {
  LayerActivations merged = *this;
  const auto has_norms = static_cast<bool>(rstd_q);
  replace(merged.out, kept.out);
  replace(merged.lse, kept.lse);
  replace(merged.q_raw, kept.q_raw);
  replace(merged.k_raw, kept.k_raw);
  replace(merged.v, kept.v);
  replace(merged.x2, kept.x2);
  replace(merged.gate, kept.gate);
  replace(merged.up, kept.up);
  for (int kind = 0; kind < kLinearKinds; ++kind) {
    replace(merged.u[kind], kept.u[kind]);
  }
  if (!has_norms) {
    merged.q = merged.q_raw;
    merged.k = merged.k_raw;
  }
  return merged;
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
