#include "ops/kv_quantise.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

void check(const char* where, const Argument& rows, const Argument& page) {
  expect_activations(where, rows, 2);
  const std::int64_t R = rows.view.dim(0);
  const std::int64_t D = rows.view.dim(1);
  expect(where, rows, rows, DType::kBf16, {R, D});
  expect(where, page, rows, DType::kI8, {R * (D + size_of(DType::kF32))});
}

}  // namespace

void kv_quantise(const KvQuantise& args) {
  check("kv_quantise", {"x", args.x}, {"page", args.page});
  const OperationScope scope("kv_quantise");
  cpu::kv_quantise(args);
}

void kv_dequantise(const KvDequantise& args) {
  check("kv_dequantise", {"y", args.y}, {"page", args.page});
  const OperationScope scope("kv_dequantise");
  cpu::kv_dequantise(args);
}

}  // namespace longtune::ops
