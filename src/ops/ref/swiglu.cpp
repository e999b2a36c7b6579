#include "ops/swiglu.h"

#include <cmath>

namespace longtune::ops::ref {
namespace {

double sigmoid(double z) {
  return 1.0 / (1.0 + std::exp(-z));
}

template <class Float>
void forward(const SwigluForward& args) {
  const auto n = args.y.elements();
  for (std::int64_t i = 0; i < n; ++i) {
    const double gate = static_cast<float>(args.gate.as<Float>()[i]);
    const double up = static_cast<float>(args.up.as<Float>()[i]);
    args.y.as<Float>()[i] = Float(static_cast<float>(gate * sigmoid(gate) * up));
  }
}

template <class Float>
void backward(const SwigluBackward& args) {
  const auto n = args.dy.elements();
  for (std::int64_t i = 0; i < n; ++i) {
    const double gate = static_cast<float>(args.gate.as<Float>()[i]);
    const double up = static_cast<float>(args.up.as<Float>()[i]);
    const double dy = static_cast<float>(args.dy.as<Float>()[i]);
    const double s = sigmoid(gate);
    args.dgate.as<Float>()[i] = Float(static_cast<float>(dy * up * s * (1 + gate * (1 - s))));
    args.dup.as<Float>()[i] = Float(static_cast<float>(dy * gate * s));
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& args) {
  with_float_type(args.y.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void swiglu_backward(const SwigluBackward& args) {
  with_float_type(args.dy.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::ref
