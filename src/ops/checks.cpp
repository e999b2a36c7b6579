#include "ops/checks.h"

#include <algorithm>

namespace longtune::ops {

void expect(const char* where,
            const Argument& argument,
            const Argument& model,
            DType dtype,
            std::initializer_list<std::int64_t> shape) {
  const ConstTensorView& view = argument.view;
  ConstTensorView expected{.rank = static_cast<int>(shape.size()), .dtype = dtype};
  std::copy(shape.begin(), shape.end(), expected.shape.begin());
  if (view.dtype != dtype || !same_shape(view, expected)) {
    fail(ErrorCode::kInvalidArgument,
         where,
         "{} {} does not match {} {}: expected {}",
         argument.name,
         describe(view),
         model.name,
         describe(model.view),
         describe(expected));
  }
  if (view.device != model.view.device) {
    fail(ErrorCode::kInvalidArgument,
         where,
         "{} {} and {} {} lie on different devices",
         argument.name,
         describe(view),
         model.name,
         describe(model.view));
  }
}

void expect_activations(const char* where, const Argument& x, int rank) {
  if (x.view.rank != rank || (x.view.dtype != DType::kF32 && x.view.dtype != DType::kBf16)) {
    fail(ErrorCode::kInvalidArgument,
         where,
         "{} {} must be f32 or bf16 with {} dimensions",
         x.name,
         describe(x.view),
         rank);
  }
  if (x.view.device != DeviceKind::kCpu) {
    fail(ErrorCode::kUnsupported,
         where,
         "no kernel for {} {} on its device",
         x.name,
         describe(x.view));
  }
}

double product_flops(std::int64_t T, const WeightView& weight) {
  return 2.0 * static_cast<double>(T) * static_cast<double>(weight.N) *
         static_cast<double>(weight.K);
}

}  // namespace longtune::ops
