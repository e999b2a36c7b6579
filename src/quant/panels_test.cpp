#include "quant/panels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace longtune {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32,
                                     WeightFormat::kF16,
                                     WeightFormat::kBf16,
                                     WeightFormat::kQ8_0,
                                     WeightFormat::kQ4_0,
                                     WeightFormat::kQ4_1,
                                     WeightFormat::kNf4};

// Every byte random, scales that are no numbers included.
std::vector<std::byte> random_memory(WeightFormat format, std::int64_t N, std::int64_t K) {
  std::vector<std::byte> memory(static_cast<std::size_t>(weight_bytes(format, N, K).value()));
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(random_bits(7, i) >> 56U);
  }
  return memory;
}

std::vector<std::uint32_t> bits_of(const WeightView& weight,
                                   std::int64_t row,
                                   std::int64_t column) {
  std::vector<float> values(static_cast<std::size_t>(weight.K - column));
  unpack(weight, row, column, weight.K - column, values.data());
  std::vector<std::uint32_t> bits(values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    constexpr std::uint32_t kNan = 0x7FC00000;  // compilers choose between two NaNs as they like
    bits[i] = std::isnan(values[i]) ? kNan : std::bit_cast<std::uint32_t>(values[i]);
  }
  return bits;
}

TEST(Panels, HoldTheSameValuesInTheSameBytes) {
  for (const WeightFormat format : kFormats) {
    const std::int64_t block = block_values(format);
    const std::int64_t N = 48;
    const std::int64_t K = block == 1 ? 37 : 9 * block;  // NF4: nested blocks end within rows
    std::vector<std::byte> memory = random_memory(format, N, K);
    const std::vector<std::byte> before = memory;
    const WeightView rows = weight_view(format, N, K, before.data(), 0.25F);
    const WeightView panels =
        arrange_panels(weight_view(format, N, K, memory.data(), 0.25F), memory.data());
    ASSERT_EQ(panels.order, WeightOrder::kPanels);
    EXPECT_NE(memory, before) << name_of(format);
    for (std::int64_t n = 0; n < N; ++n) {
      EXPECT_EQ(bits_of(panels, n, 0), bits_of(rows, n, 0)) << name_of(format) << " row " << n;
    }
    EXPECT_EQ(bits_of(panels, 17, block), bits_of(rows, 17, block)) << name_of(format);
  }
}

TEST(Panels, PutColumnsOfOneStepSideBySide) {
  std::vector<float> memory(32 * 3);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<float>(i);
  }
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  const WeightView panels = arrange_panels(weight_view(WeightFormat::kF32, 32, 3, bytes), bytes);
  ASSERT_EQ(panels.order, WeightOrder::kPanels);
  EXPECT_EQ(memory[0], 0);    // row 0, column 0
  EXPECT_EQ(memory[1], 3);    // row 1, column 0
  EXPECT_EQ(memory[15], 45);  // row 15, column 0
  EXPECT_EQ(memory[16], 1);   // row 0, column 1
  EXPECT_EQ(memory[48], 48);  // row 16, column 0
  EXPECT_EQ(memory[95], 31 * 3 + 2);
}

TEST(Panels, LeaveAMatrixOfRaggedRowsAsItIs) {
  std::vector<std::byte> memory = random_memory(WeightFormat::kQ4_1, 17, 64);
  const std::vector<std::byte> before = memory;
  const WeightView rows = weight_view(WeightFormat::kQ4_1, 17, 64, memory.data());
  EXPECT_EQ(arrange_panels(rows, memory.data()).order, WeightOrder::kRows);
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace longtune
