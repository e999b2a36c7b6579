#include "ops/cpu/panel_kernels.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/isa.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kRun = 64;  // steps of k at a time: a multiple of every block

void unpack_panel(const WeightView& weight,
                  std::int64_t panel,
                  std::int64_t first_k,
                  std::int64_t depth,
                  float* out) {
  float row[kRun];
  for (std::int64_t n = 0; n < kPanelRows; ++n) {
    for (std::int64_t done = 0; done < depth; done += kRun) {
      const std::int64_t run = std::min(kRun, depth - done);
      unpack(weight, panel * kPanelRows + n, first_k + done, run, row);
      for (std::int64_t k = 0; k < run; ++k) {
        out[(done + k) * kPanelRows + n] = row[k];
      }
    }
  }
}

void multiply_row(const RowProduct& args) {
  const std::int64_t K = args.weight.K;
  for (std::int64_t p = 0; p < args.panels; ++p) {
    float* total = args.sums + p * args.stride;
    std::fill_n(total, kPanelRows, 0.0F);
    for (std::int64_t first = 0; first < K; first += args.depth) {
      const std::int64_t end = std::min(first + args.depth, K);
      float sums[kPanelRows] = {};
      for (std::int64_t k = first; k < end; k += kRun) {
        float values[kRun * kPanelRows];
        const std::int64_t run = std::min(kRun, end - k);
        unpack_panel(args.weight, args.first_panel + p, k, run, values);
        for (std::int64_t i = 0; i < run; ++i) {
          for (std::int64_t n = 0; n < kPanelRows; ++n) {
            sums[n] += args.a[k + i] * values[i * kPanelRows + n];
          }
        }
      }
      for (std::int64_t n = 0; n < kPanelRows; ++n) {
        total[n] = first == 0 ? sums[n] : total[n] + sums[n];
      }
    }
  }
}

}  // namespace

const PanelKernels& panel_kernels_portable() {
  static constexpr PanelKernels kKernels = {.unpack = unpack_panel, .multiply_row = multiply_row};
  return kKernels;
}

const PanelKernels& panel_kernels() {
#if defined(__x86_64__)
  if (selected_isa() == Isa::kAvx512Bf16) {
    return panel_kernels_avx512_bf16();
  }
  if (selected_isa() == Isa::kAvx512) {
    return panel_kernels_avx512();
  }
  if (selected_isa() == Isa::kAvx2) {
    return panel_kernels_avx2();
  }
#endif
  return panel_kernels_portable();
}

}  // namespace longtune::ops::cpu
