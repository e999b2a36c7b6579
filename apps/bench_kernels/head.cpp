#include <fmt/format.h>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/operands.h"
#include "ops/head_loss.h"

namespace longtune::bench {
namespace {

struct Shape {
  WeightFormat format;
  std::int64_t T, V, C;
  std::int64_t tile;  ///< tokens worked on at a time
};

struct Operands {
  explicit Operands(const Shape& s)
      : shape(s),
        weight(s.format, s.V, s.C),
        x(DType::kBf16, s.T * s.C, 1),
        dx(DType::kBf16, s.T * s.C, 2),
        losses(DType::kF32, s.T, 3),
        logits(DType::kF32, s.tile * s.V, 4),
        targets(static_cast<std::size_t>(s.T), 7) {}

  void run() {
    ops::head_loss({.losses = losses.shaped({shape.T}),
                    .dx = dx.shaped({shape.T, shape.C}),
                    .logits = logits.shaped({shape.tile, shape.V}),
                    .x = x.shaped({shape.T, shape.C}),
                    .targets = view(targets, {shape.T}),
                    .weight = weight.view()});
  }

  Shape shape;
  Weight weight;
  Values x, dx, losses, logits;
  std::vector<std::int32_t> targets;
};

}  // namespace

void add_head_kernels(Kernels& kernels) {
  for (const std::int64_t tile : {64, 256}) {
    const Shape s{WeightFormat::kQ8_0, 256, 49152, 576, tile};
    kernels.push_back(
        {.name = "head_loss",
         .shape =
             fmt::format("{} T {} V {} C {} tile {}", name_of(s.format), s.T, s.V, s.C, s.tile),
         .flops = 4.0 * static_cast<double>(s.T) * static_cast<double>(s.V * s.C),
         .prepare = on_copies([s] { return Operands(s); }, [](Operands& o) { o.run(); })});
  }
}

}  // namespace longtune::bench
