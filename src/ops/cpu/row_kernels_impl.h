// The source of row_kernels.h's functions, included once by the file of each instruction set.
// Everything has internal linkage: the same names mean other code there. The loops are for the
// compiler to vectorise; it fuses nothing, so all instruction sets give the same bits.
#pragma once

#include <cstdint>

#include "ops/cpu/exp.h"
#include "ops/cpu/row_kernels.h"

namespace longtune::ops::cpu {
namespace {

inline float load(const float* p) {
  return *p;
}

inline float load(const BFloat16* p) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(p->bits) << 16U);
}

inline void store(float* p, float value) {
  *p = value;
}

// What BFloat16's constructor does, without a branch.
inline void store(BFloat16* p, float value) {
  const auto wide = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (wide + 0x7FFFU + ((wide >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (wide >> 16U) | 0x40U;
  p->bits = static_cast<std::uint16_t>((wide & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
}

// Sum over c of value(c) in sixteen partial sums, which break the dependency between additions so
// that compilers vectorise the loop; the code fixes the order of additions.
template <class Value>
inline float lane_sum(std::int64_t n, Value value) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t c = 0;
  for (; c + kLanes <= n; c += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
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

template <class Float>
float rms_norm_forward(Float* y, const Float* x, const float* weight, std::int64_t C, float eps) {
  const float square_sum = lane_sum(C, [x](std::int64_t c) { return load(x + c) * load(x + c); });
  const float rstd = 1.0F / __builtin_sqrtf(square_sum / static_cast<float>(C) + eps);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    store(y + c, load(x + c) * rstd * weight[c]);
  }
  return rstd;
}

template <class Float>
void rms_norm_backward(const typename RowKernels<Float>::RmsNormGradient& row) {
  const auto [dx, dy, x, residual, weight, rstd, C] = row;
  const float dot = lane_sum(C, [dy = dy, x = x, weight = weight](std::int64_t c) {
    return load(dy + c) * weight[c] * load(x + c);
  });
  const float scale = rstd * rstd * dot / static_cast<float>(C);
  if (residual == nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) {
      store(dx + c, rstd * (load(dy + c) * weight[c] - load(x + c) * scale));
    }
    return;
  }
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    const float gradient = rstd * (load(dy + c) * weight[c] - load(x + c) * scale);
    store(dx + c, load(residual + c) + gradient);
  }
}

template <class Float>
void rotate(Float* x, const float* cos, const float* sin, float sign, std::int64_t half) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float low = load(x + i);
    const float high = load(x + half + i);
    const float signed_sin = sign * sin[i];
    store(x + i, low * cos[i] - high * signed_sin);
    store(x + half + i, high * cos[i] + low * signed_sin);
  }
}

inline float sigmoid(float z) {
  return 1.0F / (1.0F + fast_exp(-z));
}

template <class Float>
void swiglu_forward(Float* y, const Float* gate, const Float* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float z = load(gate + i);
    store(y + i, z * sigmoid(z) * load(up + i));
  }
}

template <class Float>
void swiglu_backward(const typename RowKernels<Float>::SwigluGradient& row) {
  const auto [dgate, dup, dy, gate, up, count] = row;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float z = load(gate + i);
    const float u = load(up + i);
    const float g = load(dy + i);
    const float s = sigmoid(z);
    store(dgate + i, g * u * s * (1.0F + z * (1.0F - s)));
    store(dup + i, g * z * s);
  }
}

template <class Float>
constexpr RowKernels<Float> kRows{.rms_norm_forward = rms_norm_forward<Float>,
                                  .rms_norm_backward = rms_norm_backward<Float>,
                                  .rotate = rotate<Float>,
                                  .swiglu_forward = swiglu_forward<Float>,
                                  .swiglu_backward = swiglu_backward<Float>};

}  // namespace
}  // namespace longtune::ops::cpu
