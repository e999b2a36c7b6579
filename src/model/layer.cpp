#include "model/layer.h"

#include <cmath>

#include "base/random.h"
#include "ops/attention.h"
#include "ops/convert.h"
#include "ops/linear.h"
#include "ops/lora.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace longtune {
namespace {

// (T, H, D) as the (T, H * D) that linear layers see, and as the (T * H, D) that norms see.
template <class View>
View flat(const View& x) {
  return x.reshaped({x.dim(0), x.dim(1) * x.dim(2)});
}

template <class View>
View head_rows(const View& x) {
  return x.reshaped({x.dim(0) * x.dim(1), x.dim(2)});
}

const Adapter::Pair* adapter_pair(const LayerStep& step, LinearKind kind) {
  if (step.adapter == nullptr || !step.adapter->config().has(kind)) {
    return nullptr;
  }
  return &step.adapter->pair(step.layer, kind);
}

ops::Dropout dropout_of(const LayerStep& step, LinearKind kind) {
  const auto stream =
      static_cast<std::uint64_t>(step.layer * kLinearKinds + static_cast<int>(kind));
  return {.p = static_cast<float>(step.dropout),
          .key = random_key(step.dropout_key, stream),
          .first_row = step.cell.first_position};
}

float attention_scale(const ModelConfig& model) {
  return 1.0F / std::sqrt(static_cast<float>(model.D));
}

// The adapter's first product, u = dropout(x) A^T.
void adapt(const LayerStep& step,
           LinearKind kind,
           const ConstTensorView& x,
           const LayerActivations& activations) {
  if (const Adapter::Pair* pair = adapter_pair(step, kind)) {
    ops::lora_forward({.u = activations.u[static_cast<int>(kind)],
                       .x = x,
                       .a = pair->a,
                       .dropout = dropout_of(step, kind)});
  }
}

// y = W x + bias + residual + adapter's part.
void project(const LayerStep& step,
             LinearKind kind,
             const ConstTensorView& x,
             const TensorView& y,
             const ConstTensorView& residual,
             const LayerActivations& activations) {
  const Linear& linear = step.weights->linear(kind);
  ops::LinearForward forward{
      .y = y, .x = x, .weight = linear.weight, .bias = linear.bias, .residual = residual};
  if (const Adapter::Pair* pair = adapter_pair(step, kind)) {
    adapt(step, kind, x, activations);
    forward.adapter = {.u = activations.u[static_cast<int>(kind)],
                       .b = pair->b,
                       .scale = step.adapter->config().scale()};
  }
  ops::linear_forward(forward);
}

// dx (+)= W^T dy + adapter's part; the adapter's gradients are added to. Without dx the adapter's
// alone.
void project_backward(const LayerStep& step,
                      LinearKind kind,
                      const ConstTensorView& x,
                      const ConstTensorView& dy,
                      const TensorView& dx,
                      bool accumulate,
                      const LayerActivations& activations,
                      const TensorView& du) {
  ops::LinearBackward backward{
      .dx = dx, .dy = dy, .weight = step.weights->linear(kind).weight, .accumulate = accumulate};
  const Adapter::Pair* pair = adapter_pair(step, kind);
  const bool drops = step.dropout > 0;
  if (pair != nullptr) {
    ops::lora_backward({.da = pair->da,
                        .db = pair->db,
                        .du = du,
                        .dy = dy,
                        .x = x,
                        .u = activations.u[static_cast<int>(kind)],
                        .a = pair->a,
                        .b = pair->b,
                        .scale = step.adapter->config().scale(),
                        .dropout = dropout_of(step, kind)});
    if (!drops) {
      backward.adapter = {.du = du, .a = pair->a};
    }
  }
  if (!dx) {
    return;
  }
  ops::linear_backward(backward);
  if (pair != nullptr && drops) {
    ops::lora_input_backward({.dx = dx, .du = du, .a = pair->a, .dropout = dropout_of(step, kind)});
  }
}

enum class Pass : std::uint8_t { kForward, kRecomputation };

void attend(const LayerStep& step, ops::AttentionForward args, Pass pass) {
  if (step.routed == nullptr) {
    args.kv = step.kv;
    args.first_position = step.cell.first_position;
    ops::attention_forward(args);
  } else if (pass == Pass::kForward) {
    step.routed->forward(step.layer, args);
  } else {
    step.routed->recompute(step.layer, args);
  }
}

void attention_block(const LayerStep& step,
                     const ConstTensorView& x,
                     const LayerActivations& a,
                     LayerKept kept,
                     Pass pass) {
  const bool has_products = kept == LayerKept::kProducts;
  const ModelConfig& model = *step.model;
  const Cell& cell = step.cell;
  ops::rms_norm_forward({.y = a.h1,
                         .rstd = a.rstd1,
                         .x = x,
                         .weight = step.weights->attention_norm,
                         .eps = model.norm_eps});
  if (!has_products) {
    project(step, LinearKind::kQ, a.h1, flat(a.q_raw), {}, a);
    project(step, LinearKind::kK, a.h1, flat(a.k_raw), {}, a);
    project(step, LinearKind::kV, a.h1, flat(a.v), {}, a);
  }
  if (model.qk_norm) {
    ops::rms_norm_forward({.y = head_rows(a.q),
                           .rstd = a.rstd_q,
                           .x = head_rows(a.q_raw),
                           .weight = step.weights->q_norm,
                           .eps = model.norm_eps});
    ops::rms_norm_forward({.y = head_rows(a.k),
                           .rstd = a.rstd_k,
                           .x = head_rows(a.k_raw),
                           .weight = step.weights->k_norm,
                           .eps = model.norm_eps});
  }
  const bool is_rotated = has_products && !model.qk_norm;  // in place, before it was kept
  if (!is_rotated) {
    ops::rope_apply({.x = a.q, .cos = cell.cos, .sin = cell.sin});
    ops::rope_apply({.x = a.k, .cos = cell.cos, .sin = cell.sin});
  }
  ops::kv_append({.kv = step.kv, .k = a.k, .v = a.v, .first_position = cell.first_position});
  if (step.routed != nullptr) {
    step.routed->close(step.layer);
  }
  if (kept == LayerKept::kInput) {
    attend(step, {.out = a.out, .lse = a.lse, .q = a.q, .scale = attention_scale(model)}, pass);
  }
  if (!has_products) {
    project(step, LinearKind::kO, flat(a.out), a.x2, x, a);
  }
}

void mlp_block(const LayerStep& step, const LayerActivations& a, LayerKept kept) {
  ops::rms_norm_forward({.y = a.h2,
                         .rstd = a.rstd2,
                         .x = a.x2,
                         .weight = step.weights->mlp_norm,
                         .eps = step.model->norm_eps});
  if (kept != LayerKept::kProducts) {
    project(step, LinearKind::kGate, a.h2, a.gate, {}, a);
    project(step, LinearKind::kUp, a.h2, a.up, {}, a);
  }
  ops::swiglu_forward({.y = a.s, .gate = a.gate, .up = a.up});
}

void mlp_backward(const LayerStep& step,
                  const TensorView& dx,
                  const LayerActivations& a,
                  const LayerGradients& g) {
  project_backward(step, LinearKind::kDown, a.s, dx, g.ds, false, a, g.du);
  ops::swiglu_backward({.dgate = a.gate, .dup = a.up, .dy = g.ds, .gate = a.gate, .up = a.up});
  project_backward(step, LinearKind::kGate, a.h2, a.gate, g.dh, false, a, g.du);
  project_backward(step, LinearKind::kUp, a.h2, a.up, g.dh, true, a, g.du);
  ops::rms_norm_backward({.dx = dx,
                          .dy = g.dh,
                          .x = a.x2,
                          .rstd = a.rstd2,
                          .weight = step.weights->mlp_norm,
                          .residual = dx});
}

// From the gradient of the attention's output to those of q_raw, k_raw and v, in g.dq, g.dk and
// g.dv.
void attention_core_backward(const LayerStep& step,
                             const LayerActivations& a,
                             const LayerGradients& g) {
  const Cell& cell = step.cell;
  ops::AttentionBackward args{.dq = g.dq,
                              .dk = g.dk_sum,
                              .dv = g.dv_sum,
                              .delta = g.delta,
                              .group_dk = g.group_dk,
                              .group_dv = g.group_dv,
                              .dout = g.dout,
                              .out = a.out,
                              .lse = a.lse,
                              .q = a.q,
                              .scale = attention_scale(*step.model)};
  if (step.routed != nullptr) {
    step.routed->backward(step.layer, args);
  } else {
    args.kv = step.kv;
    args.first_position = cell.first_position;
    args.live_begin = cell.first_position;
    ops::attention_backward(args);
  }
  if (g.dk.data != g.dk_sum.data) {
    ops::convert({.y = g.dk, .x = g.dk_sum});
    ops::convert({.y = g.dv, .x = g.dv_sum});
  }
  for (const TensorView& gradient : {g.dq, g.dk}) {
    ops::rope_apply({.x = gradient,
                     .cos = cell.cos,
                     .sin = cell.sin,
                     .direction = ops::RopeDirection::kBackward});
  }
  if (step.model->qk_norm) {
    ops::rms_norm_backward({.dx = head_rows(g.dq),
                            .dy = head_rows(g.dq),
                            .x = head_rows(a.q_raw),
                            .rstd = a.rstd_q,
                            .weight = step.weights->q_norm});
    ops::rms_norm_backward({.dx = head_rows(g.dk),
                            .dy = head_rows(g.dk),
                            .x = head_rows(a.k_raw),
                            .rstd = a.rstd_k,
                            .weight = step.weights->k_norm});
  }
}

}  // namespace

void layer_recompute(const LayerStep& step,
                     const ConstTensorView& x,
                     const LayerActivations& activations,
                     LayerKept kept) {
  attention_block(step, x, activations, kept, Pass::kRecomputation);
  mlp_block(step, activations, kept);
  if (kept != LayerKept::kProducts) {
    adapt(step, LinearKind::kDown, activations.s, activations);
  }
}

void layer_forward(const LayerStep& step,
                   const ConstTensorView& x,
                   const TensorView& y,
                   const LayerActivations& activations) {
  attention_block(step, x, activations, LayerKept::kInput, Pass::kForward);
  mlp_block(step, activations, LayerKept::kInput);
  project(step, LinearKind::kDown, activations.s, y, activations.x2, activations);
}

void layer_backward(const LayerStep& step,
                    const ConstTensorView& x,
                    const TensorView& dx,
                    const LayerActivations& activations,
                    const LayerGradients& gradients,
                    LayerGradient wanted) {
  const LayerActivations& a = activations;
  const LayerGradients& g = gradients;
  mlp_backward(step, dx, a, g);
  project_backward(step, LinearKind::kO, flat(a.out), dx, flat(g.dout), false, a, g.du);
  attention_core_backward(step, a, g);
  const TensorView dh = wanted == LayerGradient::kAll ? g.dh : TensorView{};
  project_backward(step, LinearKind::kQ, a.h1, flat(g.dq), dh, false, a, g.du);
  project_backward(step, LinearKind::kK, a.h1, flat(g.dk), dh, true, a, g.du);
  project_backward(step, LinearKind::kV, a.h1, flat(g.dv), dh, true, a, g.du);
  if (wanted == LayerGradient::kAll) {
    ops::rms_norm_backward({.dx = dx,
                            .dy = g.dh,
                            .x = x,
                            .rstd = a.rstd1,
                            .weight = step.weights->attention_norm,
                            .residual = dx});
  }
}

}  // namespace longtune
