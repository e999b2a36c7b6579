#include "ops/rope.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {

void rope_table(const RopeTable& args) {
  expect_activations("rope_table", {"cos", args.cos}, 2);
  const std::int64_t T = args.cos.dim(0);
  const std::int64_t half = args.cos.dim(1);
  const Argument cos{"cos", args.cos};
  expect("rope_table", cos, cos, DType::kF32, {T, half});
  expect("rope_table", {"sin", args.sin}, cos, DType::kF32, {T, half});
  expect("rope_table", {"frequencies", args.frequencies}, cos, DType::kF32, {half});
  const OperationScope scope("rope_table");
  cpu::rope_table(args);
}

void rope_apply(const RopeApply& args) {
  expect_activations("rope_apply", {"x", args.x}, 3);
  const std::int64_t D = args.x.dim(2);
  if (D % 2 != 0) {
    fail(ErrorCode::kInvalidArgument,
         "rope_apply",
         "x {} has a head dimension of {}, which does not fall into pairs",
         describe(args.x),
         D);
  }
  const Argument x{"x", args.x};
  expect("rope_apply", {"cos", args.cos}, x, DType::kF32, {args.x.dim(0), D / 2});
  expect("rope_apply", {"sin", args.sin}, x, DType::kF32, {args.x.dim(0), D / 2});
  const OperationScope scope("rope_apply");
  cpu::rope_apply(args);
}

}  // namespace longtune::ops
