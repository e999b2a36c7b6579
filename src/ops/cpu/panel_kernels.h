#pragma once

#include <cstdint>

#include "ops/cpu/gemm_kernels.h"
#include "quant/weight.h"

/// What products read from weights in panels (WeightOrder::kPanels), by instruction set.
namespace longtune::ops::cpu {

/// One row of A by panels of W: sums[p * stride + n] = sum_k a[k] * W[n of panel p, k].
struct RowProduct {
  const float* a = nullptr;         ///< (K)
  const Bf16Pair* pairs = nullptr;  ///< (ceil(K / 2)), what multiply_row_pairs reads instead of a
  WeightView weight;                ///< in panels
  std::int64_t first_panel = 0;
  std::int64_t panels = 0;
  std::int64_t depth = 0;  ///< steps of k that are summed on their own before they join the rest
  float* sums = nullptr;   ///< kPanelRows of each panel
  std::int64_t stride = kPanelRows;
};

struct PanelKernels {
  /// out[k, n] = W[panel * kPanelRows + n, first_k + k] for k < depth, n < kPanelRows; first_k and
  /// depth are multiples of the format's block. The values of longtune::unpack.
  void (*unpack)(const WeightView& weight,
                 std::int64_t panel,
                 std::int64_t first_k,
                 std::int64_t depth,
                 float* out);

  /// Straight from the blocks, unpacked in registers; the bits of GemmKernels::multiply on what
  /// `unpack` gives.
  void (*multiply_row)(const RowProduct& args);

  /// The same in products of bf16, with the bits of GemmKernels::multiply_pairs; null where that
  /// is.
  void (*multiply_row_pairs)(const RowProduct& args) = nullptr;
};

/// The table of selected_isa().
[[nodiscard]] const PanelKernels& panel_kernels();

[[nodiscard]] const PanelKernels& panel_kernels_portable();
[[nodiscard]] const PanelKernels& panel_kernels_avx2();         ///< x86-64 only
[[nodiscard]] const PanelKernels& panel_kernels_avx512();       ///< x86-64 only
[[nodiscard]] const PanelKernels& panel_kernels_avx512_bf16();  ///< x86-64 only

}  // namespace longtune::ops::cpu
