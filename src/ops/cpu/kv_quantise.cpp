#include "ops/kv_quantise.h"

#include <bit>
#include <limits>

namespace longtune::ops::cpu {
namespace {

// Fewer values are not worth waking threads for.
constexpr std::int64_t kParallelValues = 32768;

// Values without sign order as their bits do, and what is not finite comes last.
std::int16_t largest_bits(const BFloat16* x, std::int64_t D) {
  std::int16_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t d = 0; d < D; ++d) {
    const auto bits = static_cast<std::int16_t>(x[d].bits & 0x7FFFU);
    largest = largest < bits ? bits : largest;
  }
  return largest;
}

float quantise_row(const BFloat16* x, std::int64_t D, std::int8_t* q) {
  // Adding it leaves no bit for a fraction: sums round as `round` is to.
  constexpr float kWhole = 0x1.8p23F;
  constexpr std::int16_t kInfinity = 0x7F80;
  const std::int16_t bits = largest_bits(x, D);
  BFloat16 largest;
  largest.bits = static_cast<std::uint16_t>(bits);
  const float scale = bits < kInfinity ? static_cast<float>(largest) / 127
                                       : std::numeric_limits<float>::quiet_NaN();
  const bool is_empty = !(scale > 0);
#pragma omp simd
  for (std::int64_t d = 0; d < D; ++d) {
    const float quotient = static_cast<float>(x[d]) / scale + kWhole - kWhole;
    const float low = quotient < -127.0F ? -127.0F : quotient;
    const float bounded = low > 127.0F ? 127.0F : low;
    q[d] = static_cast<std::int8_t>(static_cast<std::int32_t>(is_empty ? 0.0F : bounded));
  }
  return scale;
}

}  // namespace

void kv_quantise(const KvQuantise& args) {
  const std::int64_t R = args.x.dim(0);
  const std::int64_t D = args.x.dim(1);
  auto* scales = reinterpret_cast<float*>(args.page.data + R * D);
#pragma omp parallel for schedule(static) if (R * D > kParallelValues)
  for (std::int64_t r = 0; r < R; ++r) {
    scales[r] = quantise_row(args.x.as<BFloat16>() + r * D, D, args.page.as<std::int8_t>() + r * D);
  }
}

void kv_dequantise(const KvDequantise& args) {
  const std::int64_t R = args.y.dim(0);
  const std::int64_t D = args.y.dim(1);
  const auto* scales = reinterpret_cast<const float*>(args.page.data + R * D);
#pragma omp parallel for schedule(static) if (R * D > kParallelValues)
  for (std::int64_t r = 0; r < R; ++r) {
    const auto* q = args.page.as<std::int8_t>() + r * D;
    auto* y = args.y.as<BFloat16>() + r * D;
    const float scale = scales[r];
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) {
      y[d] = BFloat16(static_cast<float>(q[d]) * scale);
    }
  }
}

}  // namespace longtune::ops::cpu
