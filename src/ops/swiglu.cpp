#include "ops/swiglu.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {
namespace {

void check(const ConstTensorView& gate, std::initializer_list<Argument> others) {
  expect_activations("swiglu", {"gate", gate}, 2);
  for (const Argument& other : others) {
    expect("swiglu", other, {"gate", gate}, gate.dtype, {gate.dim(0), gate.dim(1)});
  }
}

}  // namespace

void swiglu_forward(const SwigluForward& args) {
  check(args.gate, {{"up", args.up}, {"y", args.y}});
  const OperationScope scope("swiglu_forward");
  cpu::swiglu_forward(args);
}

void swiglu_backward(const SwigluBackward& args) {
  check(args.gate, {{"up", args.up}, {"dy", args.dy}, {"dgate", args.dgate}, {"dup", args.dup}});
  const OperationScope scope("swiglu_backward");
  cpu::swiglu_backward(args);
}

}  // namespace longtune::ops
