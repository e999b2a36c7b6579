#include "ops/swiglu.h"

#include <algorithm>

#include "ops/cpu/row_kernels.h"

namespace longtune::ops::cpu {
namespace {

// Elements that a thread takes at a time, whatever the rows are.
constexpr std::int64_t kStep = 4096;

template <class Float>
void forward(const SwigluForward& args) {
  const auto n = args.y.elements();
  const RowKernels<Float>& kernels = row_kernels<Float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; i += kStep) {
    kernels.swiglu_forward(args.y.as<Float>() + i,
                           args.gate.as<Float>() + i,
                           args.up.as<Float>() + i,
                           std::min(kStep, n - i));
  }
}

template <class Float>
void backward(const SwigluBackward& args) {
  const auto n = args.dy.elements();
  const RowKernels<Float>& kernels = row_kernels<Float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < n; i += kStep) {
    kernels.swiglu_backward({.dgate = args.dgate.as<Float>() + i,
                             .dup = args.dup.as<Float>() + i,
                             .dy = args.dy.as<Float>() + i,
                             .gate = args.gate.as<Float>() + i,
                             .up = args.up.as<Float>() + i,
                             .count = std::min(kStep, n - i)});
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& args) {
  with_float_type(args.y.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void swiglu_backward(const SwigluBackward& args) {
  with_float_type(args.dy.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::cpu
