#include "ops/linear.h"

#include "ops/cpu/gemm.h"

namespace longtune::ops::cpu {

void linear_forward(const LinearForward& args) {
  gemm({.c = args.y,
        .a = args.x,
        .b = args.weight,
        .b_layout = Layout::kTransposed,
        .low_rank = {.u = args.adapter.u,
                     .v = args.adapter.b,
                     .v_layout = Layout::kTransposed,
                     .scale = args.adapter.scale},
        .bias = args.bias,
        .residual = args.residual});
}

void linear_backward(const LinearBackward& args) {
  gemm({.c = args.dx,
        .a = args.dy,
        .b = args.weight,
        .low_rank = {.u = args.adapter.du, .v = args.adapter.a},
        .residual = args.accumulate ? ConstTensorView(args.dx) : ConstTensorView()});
}

}  // namespace longtune::ops::cpu
