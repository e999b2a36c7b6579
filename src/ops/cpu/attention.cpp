#include "ops/attention.h"

namespace longtune::ops::cpu {

// The plain loops serve until the tiled kernels stand.

void attention_forward(const AttentionForward& args) {
  ref::attention_forward(args);
}

void attention_backward(const AttentionBackward& args) {
  ref::attention_backward(args);
}

}  // namespace longtune::ops::cpu
