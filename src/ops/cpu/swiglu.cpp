#include "ops/swiglu.h"

#include "ops/cpu/exp.h"

namespace longtune::ops::cpu {
namespace {

inline float sigmoid(float z) {
  return 1.0F / (1.0F + fast_exp(-z));
}

template <class Float>
void forward(const SwigluForward& args) {
  const auto n = args.y.elements();
  const auto* gates = args.gate.as<Float>();
  const auto* ups = args.up.as<Float>();
  auto* y = args.y.as<Float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) {
    const auto gate = static_cast<float>(gates[i]);
    y[i] = Float(gate * sigmoid(gate) * static_cast<float>(ups[i]));
  }
}

// Reads an element of all inputs before it writes it, since dgate may be gate and dup up.
template <class Float>
void backward(const SwigluBackward& args) {
  const auto n = args.dy.elements();
  const auto* gates = args.gate.as<Float>();
  const auto* ups = args.up.as<Float>();
  const auto* dys = args.dy.as<Float>();
  auto* dgate = args.dgate.as<Float>();
  auto* dup = args.dup.as<Float>();
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < n; ++i) {
    const auto gate = static_cast<float>(gates[i]);
    const auto up = static_cast<float>(ups[i]);
    const auto dy = static_cast<float>(dys[i]);
    const float s = sigmoid(gate);
    dgate[i] = Float(dy * up * s * (1.0F + gate * (1.0F - s)));
    dup[i] = Float(dy * gate * s);
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& args) {
  with_float_type(args.y.dtype, [&]<class Float>(Float*) { forward<Float>(args); });
}

void swiglu_backward(const SwigluBackward& args) {
  with_float_type(args.dy.dtype, [&]<class Float>(Float*) { backward<Float>(args); });
}

}  // namespace longtune::ops::cpu
