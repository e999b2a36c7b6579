#pragma once

#include <cstdint>

#include "base/half.h"
#include "quant/weight.h"

namespace longtune::ops::cpu {

constexpr std::int64_t kTileCols = 16;  ///< the width of a panel of B and of C's sums
static_assert(kTileCols == kPanelRows);

/// Two numbers of bf16, the first in the lower half.
using Bf16Pair = std::uint32_t;

/// Between rows of A as products pack it: as long as a block of k and no power of two, so that rows
/// share no cache sets.
constexpr std::int64_t kLeftStride = 256 + 16;
constexpr std::int64_t kLeftPairStride = kLeftStride / 2;

/// Panels of B by a few rows of A:
///
///     c[p, r, :] = (first ? 0 : c[p, r, :]) + sum_k a[r, k] * b[p, k, :]
///
/// k ascending; the sum is complete before it is added to c. Step: float, or Bf16Pair for two steps
/// of k at a time, whose two products join an element's sum as the instruction has it.
template <class Step>
struct TileProductOf {
  const Step* a = nullptr;   ///< (rows, depth), a row every kLeftStride or kLeftPairStride
  const Step* b = nullptr;   ///< (depth, kTileCols) of each panel
  std::int64_t b_panel = 0;  ///< from one panel of b to the next
  std::int64_t depth = 0;
  float* c = nullptr;        ///< (rows, kTileCols) of each panel
  std::int64_t c_panel = 0;  ///< from one panel of c to the next
  std::int64_t rows = 0;     ///< 1 to tile_rows
  std::int64_t panels = 0;   ///< 1 to tile_panels
  bool first = true;
};

using TileProduct = TileProductOf<float>;
using PairTileProduct = TileProductOf<Bf16Pair>;

/// How the sums of a run of columns of one row become output:
///
///     out[i] = scale * sums[i] * mask[i] + bias[i] + residual[i]
///
/// in this order of operations, each rounded to f32. Null pointers leave a term out.
struct GemmFinish {
  const float* sums = nullptr;  ///< kTileCols of them, then the next ones `panel_stride` later
  std::int64_t panel_stride = 0;
  float scale = 1;
  const float* mask = nullptr;
  const float* bias = nullptr;
  const std::byte* residual = nullptr;  ///< dtype of out, may be out itself
  std::byte* out = nullptr;             ///< f32, or bf16 where `bf16`
  bool bf16 = false;
};

/// What gemm() needs of an instruction set. Every kernel of a table rounds alike, whichever of them
/// computes an element, so that the table alone decides an element's bits.
struct GemmKernels {
  std::int64_t tile_rows;    ///< of C, held in registers
  std::int64_t tile_panels;  ///< of C, held in registers

  void (*multiply)(const TileProduct& product);

  /// Products of bf16; null where the instruction set has none. Denormal numbers count as zero.
  void (*multiply_pairs)(const PairTileProduct& product) = nullptr;

  /// pairs[j, n] = panel[2 j, n] and panel[2 j + 1, n] rounded to bf16 for 2 j < depth, zero beyond
  /// depth; `pairs` may be the panel's memory. Null where multiply_pairs is.
  void (*pair)(const float* panel, std::int64_t depth, Bf16Pair* pairs) = nullptr;

  /// longtune::unpack of a matrix in rows.
  void (*unpack)(const WeightView& weight,
                 std::int64_t row,
                 std::int64_t column,
                 std::int64_t count,
                 float* out);

  /// panel[k * kTileCols + n] = rows[n * stride + k] for n < kTileCols, k < depth.
  void (*transpose)(const float* rows, std::int64_t stride, std::int64_t depth, float* panel);

  void (*widen)(const BFloat16* from, std::int64_t count, float* to);

  void (*finish)(const GemmFinish& finish, std::int64_t count);
};

/// The table of selected_isa().
[[nodiscard]] const GemmKernels& gemm_kernels();

[[nodiscard]] const GemmKernels& gemm_kernels_portable();
[[nodiscard]] const GemmKernels& gemm_kernels_avx2();         ///< x86-64 only
[[nodiscard]] const GemmKernels& gemm_kernels_avx512();       ///< x86-64 only
[[nodiscard]] const GemmKernels& gemm_kernels_avx512_bf16();  ///< x86-64 only

}  // namespace longtune::ops::cpu
