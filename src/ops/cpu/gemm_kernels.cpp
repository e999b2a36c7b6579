#include "ops/cpu/gemm_kernels.h"

#include <cstring>

#include "ops/cpu/isa.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kHalf = 8;  // columns whose sums fit the registers of narrow machines

template <int Rows>
void multiply_rows(const TileProduct& product) {
  const auto& [a, b, b_panel, depth, c, c_panel, rows, panels, first] = product;
  for (std::int64_t half = 0; half < kTileCols; half += kHalf) {
    float sums[Rows][kHalf] = {};
    for (std::int64_t k = 0; k < depth; ++k) {
      const float* from = b + k * kTileCols + half;
      for (int r = 0; r < Rows; ++r) {
        const float factor = a[r * kLeftStride + k];
        for (std::int64_t n = 0; n < kHalf; ++n) {
          sums[r][n] += factor * from[n];
        }
      }
    }
    for (int r = 0; r < Rows; ++r) {
      for (std::int64_t n = 0; n < kHalf; ++n) {
        float& to = c[r * kTileCols + half + n];
        to = first ? sums[r][n] : to + sums[r][n];
      }
    }
  }
}

void multiply(const TileProduct& product) {
  constexpr void (*kRows[])(const TileProduct&) = {multiply_rows<1>,
                                                   multiply_rows<2>,
                                                   multiply_rows<3>,
                                                   multiply_rows<4>,
                                                   multiply_rows<5>,
                                                   multiply_rows<6>};
  kRows[product.rows - 1](product);
}

void transpose(const float* rows, std::int64_t stride, std::int64_t depth, float* panel) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t n = 0; n < kTileCols; ++n) {
      panel[k * kTileCols + n] = rows[n * stride + k];
    }
  }
}

void widen(const BFloat16* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]);
  }
}

template <class Float>
void finish_as(const GemmFinish& finish, std::int64_t count) {
  const auto* residual = reinterpret_cast<const Float*>(finish.residual);
  auto* out = reinterpret_cast<Float*>(finish.out);
  for (std::int64_t i = 0; i < count; ++i) {
    const float* panel = finish.sums + i / kTileCols * finish.panel_stride;
    float value = finish.scale * panel[i % kTileCols];
    value = finish.mask == nullptr ? value : value * finish.mask[i];
    value = finish.bias == nullptr ? value : value + finish.bias[i];
    value = residual == nullptr ? value : value + static_cast<float>(residual[i]);
    out[i] = Float(value);
  }
}

void finish(const GemmFinish& finish, std::int64_t count) {
  finish.bf16 ? finish_as<BFloat16>(finish, count) : finish_as<float>(finish, count);
}

}  // namespace

const GemmKernels& gemm_kernels_portable() {
  static constexpr GemmKernels kKernels = {.tile_rows = 6,
                                           .tile_panels = 1,
                                           .multiply = multiply,
                                           .unpack = longtune::unpack,
                                           .transpose = transpose,
                                           .widen = widen,
                                           .finish = finish};
  return kKernels;
}

const GemmKernels& gemm_kernels() {
#if defined(__x86_64__)
  if (selected_isa() == Isa::kAvx512Bf16) {
    return gemm_kernels_avx512_bf16();
  }
  if (selected_isa() == Isa::kAvx512) {
    return gemm_kernels_avx512();
  }
  if (selected_isa() == Isa::kAvx2) {
    return gemm_kernels_avx2();
  }
#endif
  return gemm_kernels_portable();
}

}  // namespace longtune::ops::cpu
