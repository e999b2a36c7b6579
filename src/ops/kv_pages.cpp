#include "ops/kv_pages.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {

void kv_append(const KvAppend& args) {
  expect_activations("kv_append", {"k", args.k}, 3);
  const Argument k{"k", args.k};
  const std::int64_t T = args.k.dim(0);
  if (args.k.dim(1) != args.kv.Hkv || args.k.dim(2) != args.kv.D) {
    fail(ErrorCode::kInvalidArgument,
         "kv_append",
         "k {} does not match the pages of {} heads of {} values",
         describe(args.k),
         args.kv.Hkv,
         args.kv.D);
  }
  expect("kv_append", {"v", args.v}, k, args.k.dtype, {T, args.kv.Hkv, args.kv.D});
  if (args.kv.dtype != DType::kF32 && args.kv.dtype != DType::kBf16) {
    fail(ErrorCode::kInvalidArgument,
         "kv_append",
         "pages hold {}, which is neither f32 nor bf16",
         name_of(args.kv.dtype));
  }
  if (args.first_position < 0) {
    fail(ErrorCode::kInvalidArgument,
         "kv_append",
         "first position {} is negative",
         args.first_position);
  }
  const OperationScope scope("kv_append");
  cpu::kv_append(args);
}

}  // namespace longtune::ops
