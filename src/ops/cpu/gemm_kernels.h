#pragma once

#include <cstdint>

#include "base/half.h"
#include "quant/weight.h"

namespace longtune::ops::cpu {

constexpr std::int64_t kTileRows = 6;   ///< of C, held in registers
constexpr std::int64_t kTileCols = 16;  ///< of C, held in registers: the width of a panel of B
static_assert(kTileCols == kPanelRows);

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
  /// c[r, :] = (first ? 0 : c[r, :]) + sum_k a[r * stride + k] * b[k, :], k ascending, for
  /// kTileCols columns and as many rows as the index into the array says, plus one. The sum is
  /// complete before it is added to c.
  void (*multiply[kTileRows])(const float* a,
                              std::int64_t stride,
                              const float* b,
                              std::int64_t depth,
                              float* c,
                              bool first);

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
[[nodiscard]] const GemmKernels& gemm_kernels_avx2();  ///< x86-64 only

}  // namespace longtune::ops::cpu
