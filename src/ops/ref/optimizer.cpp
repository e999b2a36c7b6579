#include "ops/optimizer.h"

#include <cmath>

namespace longtune::ops::ref {

void adamw(const AdamW& args) {
  const auto step = static_cast<double>(args.step);
  for (std::int64_t i = 0; i < args.param.elements(); ++i) {
    float& param = args.param.as<float>()[i];
    float& m = args.m.as<float>()[i];
    float& v = args.v.as<float>()[i];
    const double g = static_cast<double>(args.grad_scale) * args.grad.as<float>()[i];
    const double new_m = args.beta1 * m + (1 - args.beta1) * g;
    const double new_v = args.beta2 * v + (1 - args.beta2) * g * g;
    const double m_hat = new_m / (1 - std::pow(args.beta1, step));
    const double v_hat = new_v / (1 - std::pow(args.beta2, step));
    const double decayed = param - args.lr * args.weight_decay * param;
    param = static_cast<float>(decayed - args.lr * m_hat / (std::sqrt(v_hat) + args.eps));
    m = static_cast<float>(new_m);
    v = static_cast<float>(new_v);
  }
}

double sum_of_squares(const ConstTensorView& x) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const double value = x.as<float>()[i];
    sum += value * value;
  }
  return sum;
}

}  // namespace longtune::ops::ref
