// Apart from adapter.cpp, so that who only reads adapters needs no operations.
#include <algorithm>

#include "model/adapter.h"

namespace longtune {

void Adapter::update(ops::AdamW step) const {
  const bool on_host = static_cast<bool>(moments_part_);
  const std::int64_t part = on_host ? moments_part_.dim(1) : parameters();
  for (std::int64_t first = 0; first < parameters(); first += part) {
    const std::int64_t count = std::min(part, parameters() - first);
    const TensorView m = m_.rows(first, count);
    const TensorView v = v_.rows(first, count);
    step.param = params_.rows(first, count);
    step.grad = gradients_.rows(first, count);
    step.m = m;
    step.v = v;
    if (on_host) {
      step.m = moments_part_.reshaped({2 * part}).rows(0, count);
      step.v = moments_part_.reshaped({2 * part}).rows(part, count);
      copy_to_device(step.m, m.data, m.bytes());
      copy_to_device(step.v, v.data, v.bytes());
    }
    ops::adamw(step);
    if (on_host) {
      copy_to_host(m.data, step.m, m.bytes());
      copy_to_host(v.data, step.v, v.bytes());
    }
  }
}

}  // namespace longtune
