#include "ops/rms_norm.h"

#include "ops/cpu/row_kernels.h"

namespace longtune::ops::cpu {
namespace {

// Rows are independent: one thread owns a row, so the thread count changes no bit.

template <class Float>
void forward(const RmsNormForward& args) {
  const auto T = args.x.dim(0);
  const auto C = args.x.dim(1);
  const RowKernels<Float>& kernels = row_kernels<Float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t) {
    args.rstd.as<float>()[t] = kernels.rms_norm_forward(args.y.as<Float>() + t * C,
                                                        args.x.as<Float>() + t * C,
                                                        args.weight.as<float>(),
                                                        C,
                                                        args.eps);
  }
}

template <class Float>
void backward(const RmsNormBackward& args) {
  const auto T = args.x.dim(0);
  const auto C = args.x.dim(1);
  const RowKernels<Float>& kernels = row_kernels<Float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t) {
    kernels.rms_norm_backward(
        {.dx = args.dx.as<Float>() + t * C,
         .dy = args.dy.as<Float>() + t * C,
         .x = args.x.as<Float>() + t * C,
         .residual = args.residual ? args.residual.as<Float>() + t * C : nullptr,
         .weight = args.weight.as<float>(),
         .rstd = args.rstd.as<float>()[t],
         .C = C});
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void rms_norm_backward(const RmsNormBackward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::cpu
