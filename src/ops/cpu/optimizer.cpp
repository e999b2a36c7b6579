#include "ops/optimizer.h"

#include <array>
#include <cmath>

namespace longtune::ops::cpu {
namespace {

// Sixteen lanes break the dependency between additions.
double sum_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = x[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (; i < n; ++i) {
    const double value = x[i];
    sum += value * value;
  }
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

// The factors that do not depend on the element are made in double and rounded once, as torch does.
void adamw(const AdamW& args) {
  const auto n = args.param.elements();
  const auto step = static_cast<double>(args.step);
  const auto decay = static_cast<float>(1 - args.lr * args.weight_decay);
  const auto rate = static_cast<float>(args.lr / (1 - std::pow(args.beta1, step)));
  const auto root = static_cast<float>(std::sqrt(1 - std::pow(args.beta2, step)));
  const auto beta2 = static_cast<float>(args.beta2);
  const auto m_share = static_cast<float>(1 - args.beta1);
  const auto v_share = static_cast<float>(1 - args.beta2);
  const auto eps = static_cast<float>(args.eps);
  auto* param = args.param.as<float>();
  auto* m = args.m.as<float>();
  auto* v = args.v.as<float>();
  const auto* grad = args.grad.as<float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = args.grad_scale * grad[i];
    m[i] += m_share * (g - m[i]);
    v[i] = v[i] * beta2 + v_share * g * g;
    param[i] = param[i] * decay - rate * (m[i] / (std::sqrt(v[i]) / root + eps));
  }
}

// As many parts as the result is fixed for, whatever the number of threads that sum them.
double sum_of_squares(const ConstTensorView& x) {
  constexpr std::int64_t kParts = 64;
  std::array<double, kParts> sums{};
  const auto n = x.elements();
  const std::int64_t part = (n + kParts - 1) / kParts;
#pragma omp parallel for schedule(static)
  for (std::int64_t p = 0; p < kParts; ++p) {
    const std::int64_t begin = std::min(p * part, n);
    sums[p] = sum_of_squares(x.as<float>() + begin, std::min(part, n - begin));
  }
  double sum = 0;
  for (const double value : sums) {
    sum += value;
  }
  return sum;
}

}  // namespace longtune::ops::cpu
