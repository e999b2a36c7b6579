#include "ops/lora.h"

#include "ops/cpu/gemm.h"

namespace longtune::ops::cpu {

void lora_forward(const LoraForward& args) {
  gemm({.c = args.u,
        .a = args.x,
        .a_dropout = args.dropout,
        .b = as_weight(args.a),
        .b_layout = Layout::kTransposed});
}

void lora_backward(const LoraBackward& args) {
  // Gradients of the weights have few rows and sum over the tokens: the adapter's rank goes along
  // the rows, so that the long side fills the vectors.
  gemm({.c = args.db,
        .a = args.u,
        .a_layout = Layout::kTransposed,
        .b = as_weight(args.dy),
        .c_layout = Layout::kTransposed,
        .scale = args.scale,
        .residual = args.db});
  gemm({.c = args.du, .a = args.dy, .b = as_weight(args.b), .scale = args.scale});
  gemm({.c = args.da,
        .a = args.du,
        .a_layout = Layout::kTransposed,
        .b = as_weight(args.x),
        .b_dropout = args.dropout,
        .residual = args.da});
}

void lora_input_backward(const LoraInputBackward& args) {
  gemm({.c = args.dx,
        .a = args.du,
        .b = as_weight(args.a),
        .mask = args.dropout,
        .residual = args.dx});
}

}  // namespace longtune::ops::cpu
