#include "ops/kv_quantise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longtune::ops::ref {

void kv_quantise(const KvQuantise& args) {
  const std::int64_t R = args.x.dim(0);
  const std::int64_t D = args.x.dim(1);
  const auto* x = args.x.as<BFloat16>();
  auto* q = args.page.as<std::int8_t>();
  auto* scales = reinterpret_cast<float*>(args.page.data + R * D);
  for (std::int64_t r = 0; r < R; ++r) {
    float largest = 0;
    bool is_finite = true;
    for (std::int64_t d = 0; d < D; ++d) {
      const auto value = static_cast<float>(x[r * D + d]);
      is_finite = is_finite && std::isfinite(value);
      largest = std::max(largest, std::abs(value));
    }
    const float scale = is_finite ? largest / 127 : std::numeric_limits<float>::quiet_NaN();
    scales[r] = scale;
    for (std::int64_t d = 0; d < D; ++d) {
      const float quotient =
          scale > 0 ? std::nearbyint(static_cast<float>(x[r * D + d]) / scale) : 0;
      q[r * D + d] = static_cast<std::int8_t>(std::clamp(quotient, -127.0F, 127.0F));
    }
  }
}

void kv_dequantise(const KvDequantise& args) {
  const std::int64_t R = args.y.dim(0);
  const std::int64_t D = args.y.dim(1);
  const auto* q = args.page.as<std::int8_t>();
  const auto* scales = reinterpret_cast<const float*>(args.page.data + R * D);
  for (std::int64_t i = 0; i < R * D; ++i) {
    args.y.as<BFloat16>()[i] = BFloat16(static_cast<float>(q[i]) * scales[i / D]);
  }
}

}  // namespace longtune::ops::ref
