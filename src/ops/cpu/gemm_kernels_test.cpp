#include "ops/cpu/gemm_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/test_weights.h"

namespace longtune::ops::cpu {
namespace {

TEST(GemmKernels, UnpackTheSameBitsAsTheDefinition) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t block = block_values(format);
      const std::int64_t K = block == 1 ? 45 : 5 * block;
      const TestWeight weight(format, 3, K, 11);
      const std::int64_t count = block == 1 ? 27 : 3 * block;
      std::vector<float> fast(static_cast<std::size_t>(count));
      std::vector<float> truth(fast.size());
      gemm_kernels().unpack(weight.view(), 2, block, count, fast.data());
      unpack(weight.view(), 2, block, count, truth.data());
      EXPECT_EQ(fast, truth) << name_of(isa) << " " << name_of(format);
    }
  }
}

TEST(GemmKernels, UnpackEveryHalfExactly) {
  std::vector<std::uint16_t> halves(0x7C01);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
  }
  const WeightView weight = weight_view(WeightFormat::kF16,
                                        1,
                                        static_cast<std::int64_t>(halves.size()),
                                        reinterpret_cast<const std::byte*>(halves.data()));
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    std::vector<float> values(halves.size());
    gemm_kernels().unpack(weight, 0, 0, weight.K, values.data());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(values[i], half_to_float(halves[i])) << name_of(isa);
    }
  }
}

TEST(GemmKernels, TransposeAnyDepth) {
  const std::vector<float> rows = random_values(kTileCols * 40, 3);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const std::int64_t depth : {1, 7, 8, 9, 16, 37}) {
      std::vector<float> panel(static_cast<std::size_t>(depth * kTileCols));
      gemm_kernels().transpose(rows.data(), 40, depth, panel.data());
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t n = 0; n < kTileCols; ++n) {
          ASSERT_EQ(panel[k * kTileCols + n], rows[n * 40 + k]) << name_of(isa);
        }
      }
    }
  }
}

TEST(GemmKernels, MultiplyTheSameBitsForAnyNumberOfRowsAndPanels) {
  constexpr std::int64_t kDepth = 50;
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    const GemmKernels& kernels = gemm_kernels();
    const std::int64_t rows = kernels.tile_rows;
    const std::int64_t panels = kernels.tile_panels;
    const std::vector<float> a = random_values(rows * kLeftStride, 1);
    const std::vector<float> b = random_values(panels * kDepth * kTileCols, 2);
    const std::vector<float> before = random_values(panels * rows * kTileCols, 3);
    for (const bool first : {true, false}) {
      TileProduct product{.a = a.data(),
                          .b = b.data(),
                          .b_panel = kDepth * kTileCols,
                          .depth = kDepth,
                          .c_panel = rows * kTileCols,
                          .rows = rows,
                          .panels = panels,
                          .first = first};
      std::vector<float> all = before;
      product.c = all.data();
      kernels.multiply(product);
      for (std::int64_t i = 0; i < panels * rows * kTileCols; ++i) {
        const std::int64_t panel = i / (rows * kTileCols);
        const float* left = a.data() + i / kTileCols % rows * kLeftStride;
        const float* right = b.data() + panel * kDepth * kTileCols + i % kTileCols;
        double sum = first ? 0 : before[i];
        for (std::int64_t k = 0; k < kDepth; ++k) {
          sum += static_cast<double>(left[k]) * right[k * kTileCols];
        }
        ASSERT_NEAR(all[i], sum, 1e-5) << name_of(isa) << " at " << i;
      }
      for (product.rows = 1; product.rows <= rows; ++product.rows) {
        for (product.panels = 1; product.panels <= panels; ++product.panels) {
          std::vector<float> some = before;
          product.c = some.data();
          kernels.multiply(product);
          for (std::int64_t i = 0; i < panels * rows * kTileCols; ++i) {
            const bool written =
                i / kTileCols % rows < product.rows && i / (rows * kTileCols) < product.panels;
            ASSERT_EQ(some[i], written ? all[i] : before[i]) << name_of(isa) << " at " << i;
          }
        }
      }
    }
  }
}

// Products of bf16, against sums in f64 of the same numbers; a zero stands beside an odd last step.
TEST(GemmKernels, PairAndMultiplyPairsTheSameBitsForAnyNumberOfRowsAndPanels) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    const GemmKernels& kernels = gemm_kernels();
    ASSERT_EQ(kernels.multiply_pairs != nullptr, isa >= Isa::kAvx512Bf16);
    ASSERT_EQ(kernels.pair != nullptr, isa >= Isa::kAvx512Bf16);
    if (kernels.pair == nullptr) {
      continue;
    }
    constexpr std::int64_t kDepth = 51;
    constexpr std::int64_t kSteps = (kDepth + 1) / 2;
    const std::int64_t rows = kernels.tile_rows;
    const std::int64_t panels = kernels.tile_panels;
    const auto a = rounded_to<BFloat16>(random_values(rows * 2 * kLeftPairStride, 1));
    const std::vector<float> b = random_values(panels * kDepth * kTileCols, 2);
    const std::vector<float> before = random_values(panels * rows * kTileCols, 3);
    std::vector<Bf16Pair> a_pairs(static_cast<std::size_t>(rows * kLeftPairStride));
    std::memcpy(a_pairs.data(), a.data(), a_pairs.size() * sizeof(Bf16Pair));
    std::vector<Bf16Pair> b_pairs(b.size());
    std::memcpy(b_pairs.data(), b.data(), b.size() * sizeof(float));
    for (std::int64_t p = 0; p < panels; ++p) {
      Bf16Pair* panel = b_pairs.data() + p * kDepth * kTileCols;
      kernels.pair(reinterpret_cast<const float*>(panel), kDepth, panel);  // in place
      for (std::int64_t i = 0; i < kSteps * kTileCols; ++i) {
        const float* from = b.data() + p * kDepth * kTileCols;
        const std::int64_t k = i / kTileCols * 2;
        const std::int64_t n = i % kTileCols;
        const std::uint32_t low = BFloat16(from[k * kTileCols + n]).bits;
        const std::uint32_t high =
            k + 1 < kDepth ? BFloat16(from[(k + 1) * kTileCols + n]).bits : 0U;
        ASSERT_EQ(panel[i], low | high << 16U) << "pair " << i;
      }
    }
    for (const bool first : {true, false}) {
      PairTileProduct product{.a = a_pairs.data(),
                              .b = b_pairs.data(),
                              .b_panel = kDepth * kTileCols,
                              .depth = kSteps,
                              .c_panel = rows * kTileCols,
                              .rows = rows,
                              .panels = panels,
                              .first = first};
      std::vector<float> all = before;
      product.c = all.data();
      kernels.multiply_pairs(product);
      for (std::int64_t i = 0; i < panels * rows * kTileCols; ++i) {
        const BFloat16* left = a.data() + i / kTileCols % rows * 2 * kLeftPairStride;
        const float* right = b.data() + i / (rows * kTileCols) * kDepth * kTileCols + i % kTileCols;
        double sum = first ? 0 : before[i];
        for (std::int64_t k = 0; k < kDepth; ++k) {
          const auto rounded = static_cast<float>(BFloat16(right[k * kTileCols]));
          sum += static_cast<double>(static_cast<float>(left[k])) * rounded;
        }
        ASSERT_NEAR(all[i], sum, 1e-5) << "at " << i;
      }
      for (product.rows = 1; product.rows <= rows; ++product.rows) {
        for (product.panels = 1; product.panels <= panels; ++product.panels) {
          std::vector<float> some = before;
          product.c = some.data();
          kernels.multiply_pairs(product);
          for (std::int64_t i = 0; i < panels * rows * kTileCols; ++i) {
            const bool written =
                i / kTileCols % rows < product.rows && i / (rows * kTileCols) < product.panels;
            ASSERT_EQ(some[i], written ? all[i] : before[i]) << "at " << i;
          }
        }
      }
    }
  }
}

// What GemmFinish says, one element at a time.
template <class Float>
Float finished(float sum, float scale, float mask, float bias, Float residual) {
  float value = scale * sum;
  value = value * mask;
  value = value + bias;
  value = value + static_cast<float>(residual);
  return Float(value);
}

template <class Float>
void expect_finish(std::int64_t count) {
  constexpr std::int64_t kStride = 3 * kTileCols;  // from one panel's sums to the next one's
  constexpr std::int64_t kCols = 3 * kTileCols;
  std::vector<float> sums = random_values(3 * kStride, 1, 100);
  sums[1] = NAN;
  sums[2] = std::numeric_limits<float>::max();  // rounds to infinity in bf16
  sums[3] = -INFINITY;
  const std::vector<float> mask = random_values(kCols, 2);
  const std::vector<float> bias = random_values(kCols, 3);
  const auto residual = rounded_to<Float>(random_values(kCols, 4));
  std::vector<Float> out = residual;  // in place
  GemmFinish finish{.sums = sums.data(),
                    .panel_stride = kStride,
                    .scale = 0.75F,
                    .mask = mask.data(),
                    .bias = bias.data()};
  finish.bf16 = sizeof(Float) == 2;
  finish.out = reinterpret_cast<std::byte*>(out.data());
  finish.residual = finish.out;
  gemm_kernels().finish(finish, count);
  for (std::int64_t i = 0; i < kCols; ++i) {
    const float sum = sums[i / kTileCols * kStride + i % kTileCols];
    const Float expected =
        i < count ? finished(sum, 0.75F, mask[i], bias[i], residual[i]) : residual[i];
    if (std::isnan(static_cast<float>(expected))) {
      EXPECT_TRUE(std::isnan(static_cast<float>(out[i])));
    } else {
      EXPECT_EQ(static_cast<float>(out[i]), static_cast<float>(expected)) << "at " << i;
    }
  }
}

TEST(GemmKernels, FinishInPlaceAndInItsColumnsOnly) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    SCOPED_TRACE(name_of(isa));
    for (const std::int64_t count : {1, 7, 8, 15, 16, 17, 40, 48}) {
      expect_finish<float>(count);
      expect_finish<BFloat16>(count);
    }
  }
}

}  // namespace
}  // namespace longtune::ops::cpu
