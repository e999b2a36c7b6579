#include "ops/rope.h"

#include <cmath>

namespace longtune::ops::ref {
namespace {

template <class Float>
void apply(const RopeApply& args) {
  const auto T = args.x.dim(0);
  const auto H = args.x.dim(1);
  const auto D = args.x.dim(2);
  const double sign = args.direction == RopeDirection::kForward ? 1 : -1;
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t h = 0; h < H; ++h) {
      auto* x = args.x.as<Float>() + (t * H + h) * D;
      for (std::int64_t i = 0; i < D / 2; ++i) {
        const double cos = args.cos.as<float>()[t * (D / 2) + i];
        const double sin = sign * args.sin.as<float>()[t * (D / 2) + i];
        const double low = static_cast<float>(x[i]);
        const double high = static_cast<float>(x[i + D / 2]);
        x[i] = Float(static_cast<float>(low * cos - high * sin));
        x[i + D / 2] = Float(static_cast<float>(high * cos + low * sin));
      }
    }
  }
}

}  // namespace

void rope_table(const RopeTable& args) {
  const auto T = args.cos.dim(0);
  const auto half = args.cos.dim(1);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle =
          static_cast<float>(args.first_position + t) * args.frequencies.as<float>()[i];
      args.cos.as<float>()[t * half + i] =
          args.scale * static_cast<float>(std::cos(static_cast<double>(angle)));
      args.sin.as<float>()[t * half + i] =
          args.scale * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void rope_apply(const RopeApply& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { apply<Float>(args); });
}

}  // namespace longtune::ops::ref
