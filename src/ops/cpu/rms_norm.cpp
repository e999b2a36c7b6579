#include "ops/rms_norm.h"

#include <cmath>

namespace longtune::ops::cpu {
namespace {

// Sixteen partial sums break the dependency between additions, so that compilers vectorise the
// loop; the order of additions is fixed by the code, not by the instruction set.
constexpr std::int64_t kLanes = 16;

// Sum over c of value(c).
template <class Value>
float lane_sum(std::int64_t n, Value value) {
  float lanes[kLanes] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += value(c + lane);
    }
  }
  float sum = 0;
  for (; c < n; ++c) {
    sum += value(c);
  }
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

// Rows are independent: one thread owns a row, so the thread count changes no bit.

template <class Float>
void forward(const RmsNormForward& args) {
  const auto T = args.x.dim(0);
  const auto C = args.x.dim(1);
  const auto* weight = args.weight.as<float>();
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < T; ++t) {
    const auto* x = args.x.as<Float>() + t * C;
    auto* y = args.y.as<Float>() + t * C;
    const float square_sum = lane_sum(C, [x](std::int64_t c) {
      const auto value = static_cast<float>(x[c]);
      return value * value;
    });
    const float rstd = 1.0F / std::sqrt(square_sum / static_cast<float>(C) + args.eps);
    args.rstd.as<float>()[t] = rstd;
    for (std::int64_t c = 0; c < C; ++c) {
      y[c] = Float(static_cast<float>(x[c]) * rstd * weight[c]);
    }
  }
}

// Reads every element of a row before it writes it, since dx may be dy or residual.
template <class Float>
void backward_row(const RmsNormBackward& args, std::int64_t t) {
  const auto C = args.x.dim(1);
  const auto* weight = args.weight.as<float>();
  const auto* x = args.x.as<Float>() + t * C;
  const auto* dy = args.dy.as<Float>() + t * C;
  auto* dx = args.dx.as<Float>() + t * C;
  const float dot = lane_sum(C, [=](std::int64_t c) {
    return static_cast<float>(dy[c]) * weight[c] * static_cast<float>(x[c]);
  });
  const float rstd = args.rstd.as<float>()[t];
  const float scale = rstd * rstd * dot / static_cast<float>(C);
  const auto gradient = [=](std::int64_t c) {
    return rstd * (static_cast<float>(dy[c]) * weight[c] - static_cast<float>(x[c]) * scale);
  };
  if (!args.residual) {
    for (std::int64_t c = 0; c < C; ++c) {
      dx[c] = Float(gradient(c));
    }
    return;
  }
  const auto* residual = args.residual.as<Float>() + t * C;
  for (std::int64_t c = 0; c < C; ++c) {
    dx[c] = Float(static_cast<float>(residual[c]) + gradient(c));
  }
}

}  // namespace

void rms_norm_forward(const RmsNormForward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void rms_norm_backward(const RmsNormBackward& args) {
  with_float_type(args.x.dtype, [&]<class Float>(Float*) {
#pragma omp parallel for schedule(static)
    for (std::int64_t t = 0; t < args.x.dim(0); ++t) {
      backward_row<Float>(args, t);
    }
  });
}

}  // namespace longtune::ops::cpu
