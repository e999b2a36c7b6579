#include "ops/cpu/panel_kernels.h"

#include <gtest/gtest.h>

#include "ops/test_weights.h"

namespace longtune::ops::cpu {
namespace {

TEST(PanelKernels, UnpackTheSameBitsAsTheDefinition) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t block = block_values(format);
      const std::int64_t K = block == 1 ? 85 : 9 * block;  // NF4: nested blocks end within rows
      const TestWeight weight(format, 48, K, 11, WeightOrder::kPanels);
      const std::int64_t depth = K - 2 * block;
      std::vector<float> panel(static_cast<std::size_t>(depth * kPanelRows));
      std::vector<float> row(static_cast<std::size_t>(depth));
      panel_kernels().unpack(weight.view(), 2, block, depth, panel.data());
      for (std::int64_t n = 0; n < kPanelRows; ++n) {
        unpack(weight.view(), 2 * kPanelRows + n, block, depth, row.data());
        for (std::int64_t k = 0; k < depth; ++k) {
          ASSERT_EQ(panel[k * kPanelRows + n], row[k]) << name_of(isa) << " " << name_of(format);
        }
      }
    }
  }
}

}  // namespace
}  // namespace longtune::ops::cpu
