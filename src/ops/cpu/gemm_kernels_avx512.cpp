#include <immintrin.h>

#include "ops/cpu/gemm_kernels.h"

namespace longtune::ops::cpu {
namespace {

// 12 rows of two panels make 24 sums: more than enough to hide the latency of two multiply-adds a
// cycle, and each value of A and each vector of B that is loaded serves several of them, so that 14
// loads feed 24 multiply-adds.
constexpr int kRows = 12;
constexpr int kPanels = 2;

template <int Rows, int Panels>
void multiply_tile(const TileProduct& product) {
  const float* const a = product.a;
  const float* const b = product.b;
  const std::int64_t b_panel = product.b_panel;
  __m512 sums[Rows][Panels];
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < Panels; ++p) {
      sums[r][p] = _mm512_setzero_ps();
      const float* to = product.c + p * product.c_panel + r * kTileCols;
      _mm_prefetch(reinterpret_cast<const char*>(to), _MM_HINT_T0);
    }
  }
  for (std::int64_t k = 0; k < product.depth; ++k) {
    __m512 right[Panels];
#pragma GCC unroll 2
    for (int p = 0; p < Panels; ++p) {
      right[p] = _mm512_loadu_ps(b + p * b_panel + k * kTileCols);
    }
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const __m512 factor = _mm512_set1_ps(a[r * kLeftStride + k]);
#pragma GCC unroll 2
      for (int p = 0; p < Panels; ++p) {
        sums[r][p] = _mm512_fmadd_ps(factor, right[p], sums[r][p]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < Panels; ++p) {
      float* to = product.c + p * product.c_panel + r * kTileCols;
      const __m512 sum = sums[r][p];
      _mm512_storeu_ps(to, product.first ? sum : _mm512_add_ps(_mm512_loadu_ps(to), sum));
    }
  }
}

using Tile = void (*)(const TileProduct&);

struct Tiles {
  Tile of[kPanels][kRows];
};

template <int Rows>
constexpr void fill(Tiles& tiles) {
  tiles.of[0][Rows - 1] = multiply_tile<Rows, 1>;
  tiles.of[1][Rows - 1] = multiply_tile<Rows, 2>;
  if constexpr (Rows > 1) {
    fill<Rows - 1>(tiles);
  }
}

constexpr Tiles all_tiles() {
  Tiles tiles{};
  fill<kRows>(tiles);
  return tiles;
}

void multiply(const TileProduct& product) {
  static constexpr Tiles kTiles = all_tiles();
  kTiles.of[product.panels - 1][product.rows - 1](product);
}

}  // namespace

const GemmKernels& gemm_kernels_avx512() {
  // What only moves and rounds values is as fast as memory with the vectors of AVX2.
  static const GemmKernels kKernels = [] {
    GemmKernels kernels = gemm_kernels_avx2();
    kernels.tile_rows = kRows;
    kernels.tile_panels = kPanels;
    kernels.multiply = multiply;
    return kernels;
  }();
  return kKernels;
}

}  // namespace longtune::ops::cpu
