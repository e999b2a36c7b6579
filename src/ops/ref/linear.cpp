#include "ops/linear.h"

#include "ops/ref/element.h"

namespace longtune::ops::ref {

void linear_forward(const LinearForward& args) {
  const auto T = args.x.dim(0);
  const auto N = args.weight.N;
  const auto K = args.weight.K;
  const std::vector<float> weight = unpacked(args.weight);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        sum += get(args.x, t * K + k) * weight[n * K + k];
      }
      for (std::int64_t r = 0; args.adapter.u && r < args.adapter.u.dim(1); ++r) {
        const auto R = args.adapter.u.dim(1);
        sum += args.adapter.scale * get(args.adapter.u, t * R + r) * get(args.adapter.b, n * R + r);
      }
      sum += args.bias ? get(args.bias, n) : 0.0;
      sum += args.residual ? get(args.residual, t * N + n) : 0.0;
      set(args.y, t * N + n, sum);
    }
  }
}

void linear_backward(const LinearBackward& args) {
  const auto T = args.dy.dim(0);
  const auto N = args.weight.N;
  const auto K = args.weight.K;
  const std::vector<float> weight = unpacked(args.weight);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t k = 0; k < K; ++k) {
      double sum = args.accumulate ? get(args.dx, t * K + k) : 0.0;
      for (std::int64_t n = 0; n < N; ++n) {
        sum += get(args.dy, t * N + n) * weight[n * K + k];
      }
      for (std::int64_t r = 0; args.adapter.du && r < args.adapter.du.dim(1); ++r) {
        const auto R = args.adapter.du.dim(1);
        sum += get(args.adapter.du, t * R + r) * get(args.adapter.a, r * K + k);
      }
      set(args.dx, t * K + k, sum);
    }
  }
}

}  // namespace longtune::ops::ref
