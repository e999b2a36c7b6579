#include "ops/rope.h"

#include <cmath>

#include "ops/cpu/row_kernels.h"

namespace longtune::ops::cpu {
namespace {

template <class Float>
void apply(const RopeApply& args) {
  const auto T = args.x.dim(0);
  const auto H = args.x.dim(1);
  const auto D = args.x.dim(2);
  const RowKernels<Float>& kernels = row_kernels<Float>();
  const float sign = args.direction == RopeDirection::kForward ? 1.0F : -1.0F;
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t) {
    const auto* cos = args.cos.as<float>() + t * (D / 2);
    const auto* sin = args.sin.as<float>() + t * (D / 2);
    for (std::int64_t h = 0; h < H; ++h) {
      kernels.rotate(args.x.as<Float>() + (t * H + h) * D, cos, sin, sign, D / 2);
    }
  }
}

}  // namespace

// The library's double functions reduce large angles exactly; angles of long contexts are large.
// One table serves all layers of a segment, so its cost vanishes beside theirs.
void rope_table(const RopeTable& args) {
  const auto T = args.cos.dim(0);
  const auto half = args.cos.dim(1);
  const auto* frequencies = args.frequencies.as<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t) {
    const auto position = static_cast<float>(args.first_position + t);
    auto* cos = args.cos.as<float>() + t * half;
    auto* sin = args.sin.as<float>() + t * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = position * frequencies[i];
      cos[i] = args.scale * static_cast<float>(std::cos(angle));
      sin[i] = args.scale * static_cast<float>(std::sin(angle));
    }
  }
}

void rope_apply(const RopeApply& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { apply<Float>(args); });
}

}  // namespace longtune::ops::cpu
