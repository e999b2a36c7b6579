#include "ops/rms_norm.h"

#include <cmath>

namespace longtune::ops::ref {
namespace {

template <class Float>
void forward(const RmsNormForward& args) {
  const auto T = args.x.dim(0);
  const auto C = args.x.dim(1);
  const auto* weight = args.weight.as<float>();
  for (std::int64_t t = 0; t < T; ++t) {
    const auto* x = args.x.as<Float>() + t * C;
    auto* y = args.y.as<Float>() + t * C;
    double sum = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      const double value = static_cast<float>(x[c]);
      sum += value * value;
    }
    const double rstd = 1.0 / std::sqrt(sum / static_cast<double>(C) + args.eps);
    args.rstd.as<float>()[t] = static_cast<float>(rstd);
    for (std::int64_t c = 0; c < C; ++c) {
      const double value = static_cast<double>(static_cast<float>(x[c])) * rstd * weight[c];
      y[c] = Float(static_cast<float>(value));
    }
  }
}

template <class Float>
void backward(const RmsNormBackward& args) {
  const auto T = args.x.dim(0);
  const auto C = args.x.dim(1);
  const auto* weight = args.weight.as<float>();
  for (std::int64_t t = 0; t < T; ++t) {
    const auto* x = args.x.as<Float>() + t * C;
    const auto* dy = args.dy.as<Float>() + t * C;
    const auto* residual = args.residual ? args.residual.as<Float>() + t * C : nullptr;
    auto* dx = args.dx.as<Float>() + t * C;
    const double rstd = args.rstd.as<float>()[t];
    double dot = 0;
    for (std::int64_t c = 0; c < C; ++c) {
      dot += static_cast<double>(static_cast<float>(dy[c])) * weight[c] * static_cast<float>(x[c]);
    }
    const double scale = rstd * rstd * dot / static_cast<double>(C);
    for (std::int64_t c = 0; c < C; ++c) {
      const double g = static_cast<double>(static_cast<float>(dy[c])) * weight[c];
      const double bypass = residual == nullptr ? 0.0 : static_cast<float>(residual[c]);
      const double value = bypass + rstd * (g - static_cast<float>(x[c]) * scale);
      dx[c] = Float(static_cast<float>(value));
    }
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void rms_norm_backward(const RmsNormBackward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::ref
