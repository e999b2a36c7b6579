#include "ops/lora.h"

#include <fmt/format.h>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/operands.h"

namespace longtune::bench {
namespace {

struct Shape {
  std::int64_t T, N, K, R;
};

struct Operands {
  explicit Operands(const Shape& s)
      : shape(s),
        x(DType::kBf16, s.T * s.K, 1),
        y(DType::kBf16, s.T * s.N, 2),
        u(DType::kF32, s.T * s.R, 4),
        du(DType::kF32, s.T * s.R, 5),
        a(DType::kF32, s.R * s.K, 6),
        b(DType::kF32, s.N * s.R, 7),
        da(DType::kF32, s.R * s.K, 8),
        db(DType::kF32, s.N * s.R, 9) {}

  void forward() {
    const auto [T, N, K, R] = shape;
    ops::lora_forward({.u = u.shaped({T, R}), .x = x.shaped({T, K}), .a = a.shaped({R, K})});
  }

  void backward() {
    const auto [T, N, K, R] = shape;
    ops::lora_backward({.da = da.shaped({R, K}),
                        .db = db.shaped({N, R}),
                        .du = du.shaped({T, R}),
                        .dy = y.shaped({T, N}),
                        .x = x.shaped({T, K}),
                        .u = u.shaped({T, R}),
                        .a = a.shaped({R, K}),
                        .b = b.shaped({N, R})});
  }

  Shape shape;
  Values x, y, u, du, a, b, da, db;
};

void add_adapter(Kernels& kernels, const Shape& s) {
  const auto make = [s] { return Operands(s); };
  const std::string text = fmt::format("T {} N {} K {} R {}", s.T, s.N, s.K, s.R);
  // One product forward; backward three: with the gradient of the output twice, with the input
  // once.
  const double product = 2.0 * static_cast<double>(s.T * s.R);
  kernels.push_back({.name = "lora_forward",
                     .shape = text,
                     .flops = product * static_cast<double>(s.K),
                     .prepare = on_copies(make, [](Operands& o) { o.forward(); })});
  kernels.push_back({.name = "lora_backward",
                     .shape = text,
                     .flops = product * static_cast<double>(2 * s.N + s.K),
                     .prepare = on_copies(make, [](Operands& o) { o.backward(); })});
}

}  // namespace

void add_lora_kernels(Kernels& kernels) {
  add_adapter(kernels, {2048, 576, 576, 16});
  add_adapter(kernels, {2048, 192, 576, 16});
  add_adapter(kernels, {2048, 1536, 576, 16});
  add_adapter(kernels, {2048, 576, 1536, 16});
  add_adapter(kernels, {2048, 4096, 4096, 16});
}

}  // namespace longtune::bench
