#include "ops/linear.h"

#include <fmt/format.h>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/operands.h"

namespace longtune::bench {
namespace {

struct Shape {
  WeightFormat format;
  std::int64_t T, N, K;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} T {} N {} K {}", name_of(format), T, N, K);
  }

  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(T) * static_cast<double>(N * K);
  }
};

struct Operands {
  explicit Operands(const Shape& s)
      : shape(s),
        weight(s.format, s.N, s.K),
        x(DType::kBf16, s.T * s.K, 2),
        y(DType::kBf16, s.T * s.N, 3) {}

  void forward() {
    ops::linear_forward({.y = y.shaped({shape.T, shape.N}),
                         .x = x.shaped({shape.T, shape.K}),
                         .weight = weight.view()});
  }

  void backward() {
    ops::linear_backward({.dx = x.shaped({shape.T, shape.K}),
                          .dy = y.shaped({shape.T, shape.N}),
                          .weight = weight.view()});
  }

  Shape shape;
  Weight weight;
  Values x, y;
};

void add_products(Kernels& kernels, const Shape& s) {
  const auto make = [s] { return Operands(s); };
  kernels.push_back({.name = "linear_forward",
                     .shape = s.text(),
                     .flops = s.flops(),
                     .prepare = on_copies(make, [](Operands& o) { o.forward(); })});
  kernels.push_back({.name = "linear_backward",
                     .shape = s.text(),
                     .flops = s.flops(),
                     .prepare = on_copies(make, [](Operands& o) { o.backward(); })});
}

// What decoding does: the weights are read for one row of x.
void add_row_product(Kernels& kernels, WeightFormat format, std::int64_t N, std::int64_t K) {
  const Shape s{format, 1, N, K};
  kernels.push_back(
      {.name = "linear_forward",
       .shape = s.text(),
       .bytes = static_cast<double>(weight_bytes(format, N, K).value()),
       .prepare = on_copies([s] { return Operands(s); }, [](Operands& o) { o.forward(); })});
}

}  // namespace

void add_linear_kernels(Kernels& kernels) {
  using enum WeightFormat;
  add_products(kernels, {kNf4, 2048, 4096, 4096});
  for (const WeightFormat format : {kQ4_1, kQ8_0, kBf16, kF32}) {
    add_products(kernels, {format, 2048, 576, 576});
    add_products(kernels, {format, 2048, 192, 576});
    add_products(kernels, {format, 2048, 1536, 576});
    add_products(kernels, {format, 2048, 576, 1536});
  }
  add_products(kernels, {kQ4_1, 64, 1536, 576});
  for (const WeightFormat format : {kNf4, kQ4_0, kQ4_1, kQ8_0, kF16, kBf16, kF32}) {
    add_row_product(kernels, format, 4096, 4096);
    add_row_product(kernels, format, 1536, 576);
  }
  add_row_product(kernels, kQ8_0, 49152, 576);
}

}  // namespace longtune::bench
