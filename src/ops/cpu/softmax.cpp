#include "ops/cpu/softmax.h"

#include <algorithm>

#include "ops/cpu/exp.h"
#include "ops/cpu/isa.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kLanes = 8;  // partial results, which break the chain of dependencies

float largest(const float* values, std::int64_t count) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, values[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = lanes[lane] < values[i + lane] ? values[i + lane] : lanes[lane];
    }
  }
  float result = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) {
    result = std::max(result, values[i]);
  }
  return result;
}

double exponentiate(float* values, std::int64_t count, float largest) {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      values[i + lane] = fast_exp(values[i + lane] - largest);
      lanes[lane] += static_cast<double>(values[i + lane]);
    }
  }
  double sum = 0;
  for (; i < count; ++i) {
    values[i] = fast_exp(values[i] - largest);
    sum += static_cast<double>(values[i]);
  }
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

void multiply(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] *= factor;
  }
}

}  // namespace

const SoftmaxKernels& softmax_kernels_portable() {
  static constexpr SoftmaxKernels kKernels = {
      .largest = largest, .exponentiate = exponentiate, .multiply = multiply};
  return kKernels;
}

const SoftmaxKernels& softmax_kernels() {
#if defined(__x86_64__)
  if (selected_isa() >= Isa::kAvx512) {
    return softmax_kernels_avx512();
  }
  if (selected_isa() == Isa::kAvx2) {
    return softmax_kernels_avx2();
  }
#endif
  return softmax_kernels_portable();
}

}  // namespace longtune::ops::cpu
