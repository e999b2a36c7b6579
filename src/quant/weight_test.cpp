#include "quant/weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "quant/nf4.h"

namespace longtune {
namespace {

constexpr auto kMax = std::numeric_limits<std::int64_t>::max();

std::vector<float> unpacked(const WeightView& weight,
                            std::int64_t row,
                            std::int64_t column,
                            std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  unpack(weight, row, column, count, values.data());
  return values;
}

// A block of bytes with 16-bit numbers in front.
std::vector<std::byte> block(std::initializer_list<float> halves, const std::vector<int>& bytes) {
  std::vector<std::byte> result;
  for (const float half : halves) {
    const std::uint16_t bits = float_to_half(half);
    result.push_back(static_cast<std::byte>(bits & 255));
    result.push_back(static_cast<std::byte>(bits >> 8));
  }
  for (const int byte : bytes) {
    result.push_back(static_cast<std::byte>(byte));
  }
  return result;
}

TEST(Weight, SizesOfEveryFormat) {
  EXPECT_EQ(weight_bytes(WeightFormat::kF32, 3, 5), 60);
  EXPECT_EQ(weight_bytes(WeightFormat::kF16, 3, 5), 30);
  EXPECT_EQ(weight_bytes(WeightFormat::kBf16, 3, 5), 30);
  EXPECT_EQ(weight_bytes(WeightFormat::kQ8_0, 3, 64), 3 * 2 * 34);
  EXPECT_EQ(weight_bytes(WeightFormat::kQ4_0, 3, 64), 3 * 2 * 18);
  EXPECT_EQ(weight_bytes(WeightFormat::kQ4_1, 3, 64), 3 * 2 * 20);
  // 96 bytes of codes and 3 scales, each up to 128, and one nested scale.
  EXPECT_EQ(weight_bytes(WeightFormat::kNf4, 3, 64), 128 + 128 + 4);
  // 257 blocks: 8,224 bytes up to 8,320; 257 scales up to 384; two nested scales.
  EXPECT_EQ(weight_bytes(WeightFormat::kNf4, 257, 64), 8320 + 384 + 8);
}

TEST(Weight, RefusesRaggedBlocksAndSizesThatOverflow) {
  EXPECT_FALSE(weight_bytes(WeightFormat::kQ8_0, 3, 33));
  EXPECT_FALSE(weight_bytes(WeightFormat::kNf4, 2, 32));
  EXPECT_FALSE(weight_bytes(WeightFormat::kF32, kMax, 2));
  EXPECT_FALSE(weight_bytes(WeightFormat::kF32, kMax / 2, 1));
  EXPECT_FALSE(weight_bytes(WeightFormat::kBf16, -1, 4));
  EXPECT_FALSE(weight_bytes(WeightFormat::kNf4, kMax / 64, 64));
}

TEST(Weight, UnpacksPlainFormats) {
  const std::vector<float> f32 = {1, 2, 3, 4, 5, 6};
  const auto* f32_bytes = reinterpret_cast<const std::byte*>(f32.data());
  EXPECT_EQ(unpacked(weight_view(WeightFormat::kF32, 2, 3, f32_bytes), 1, 1, 2),
            (std::vector<float>{5, 6}));
  const std::vector<BFloat16> bf16 = {BFloat16(1), BFloat16(-2.5F), BFloat16(3), BFloat16(0.5F)};
  const auto* bf16_bytes = reinterpret_cast<const std::byte*>(bf16.data());
  EXPECT_EQ(unpacked(weight_view(WeightFormat::kBf16, 2, 2, bf16_bytes), 0, 0, 2),
            (std::vector<float>{1, -2.5F}));
  const std::vector<std::byte> f16 = block({65504, 0x1p-24F, -1, 7}, {});
  EXPECT_EQ(unpacked(weight_view(WeightFormat::kF16, 2, 2, f16.data()), 0, 0, 2),
            (std::vector<float>{65504, 0x1p-24F}));
}

TEST(Weight, UnpacksQ8) {
  std::vector<int> bytes(32);
  bytes[0] = 127;
  bytes[1] = 128;   // -128
  bytes[31] = 255;  // -1
  const auto memory = block({0.25F}, bytes);
  const auto values = unpacked(weight_view(WeightFormat::kQ8_0, 1, 32, memory.data()), 0, 0, 32);
  EXPECT_EQ(values[0], 31.75F);
  EXPECT_EQ(values[1], -32);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[31], -0.25F);
}

TEST(Weight, UnpacksQ4WithTheSecondHalfInTheHighNibbles) {
  std::vector<int> bytes(16);
  bytes[0] = 0xF1;
  bytes[15] = 0x28;
  const auto q4_0 = block({0.5F}, bytes);
  const auto plain = unpacked(weight_view(WeightFormat::kQ4_0, 1, 32, q4_0.data()), 0, 0, 32);
  EXPECT_EQ(plain[0], -3.5F);
  EXPECT_EQ(plain[16], 3.5F);
  EXPECT_EQ(plain[15], 0);
  EXPECT_EQ(plain[31], -3);
  const auto q4_1 = block({0.5F, -2}, bytes);
  const auto shifted = unpacked(weight_view(WeightFormat::kQ4_1, 1, 32, q4_1.data()), 0, 0, 32);
  EXPECT_EQ(shifted[0], -1.5F);
  EXPECT_EQ(shifted[16], 5.5F);
  EXPECT_EQ(shifted[15], 2);
  EXPECT_EQ(shifted[31], -1);
}

TEST(Weight, UnpacksTheBlocksOfItsRowOnly) {
  std::vector<std::byte> memory;
  for (const float scale : {1.0F, 2.0F, 4.0F, 8.0F, 16.0F, 32.0F}) {  // two rows of three blocks
    const auto next = block({scale}, std::vector<int>(32, 1));
    memory.insert(memory.end(), next.begin(), next.end());
  }
  const auto weight = weight_view(WeightFormat::kQ8_0, 2, 96, memory.data());
  const auto values = unpacked(weight, 1, 32, 64);
  EXPECT_EQ(values[0], 16);
  EXPECT_EQ(values[31], 16);
  EXPECT_EQ(values[32], 32);
}

TEST(Weight, UnpacksNf4ByItsTwoScales) {
  std::vector<std::byte> memory(static_cast<std::size_t>(*weight_bytes(WeightFormat::kNf4, 2, 64)));
  memory[32] = std::byte{0xF0};  // the second row's first two values: codes 15 and 0
  const auto weight = weight_view(WeightFormat::kNf4, 2, 64, memory.data(), 3);
  memory[128 + 1] = std::byte{255};  // the map's 1
  const float nested = 0.5F;
  std::memcpy(memory.data() + 256, &nested, 4);
  const auto values = unpacked(weight, 1, 0, 64);
  EXPECT_EQ(values[0], 3.5F);
  EXPECT_EQ(values[1], -3.5F);
  EXPECT_EQ(unpacked(weight, 0, 0, 64)[0], -(nf4_dynamic_map()[0] * 0.5F + 3));
}

TEST(Weight, AViewMadeWhilePlanningHasNoData) {
  const auto weight = weight_view(WeightFormat::kNf4, 2, 64, nullptr);
  EXPECT_TRUE(weight);
  EXPECT_EQ(weight.data, nullptr);
  EXPECT_EQ(weight.absmax, nullptr);
}

}  // namespace
}  // namespace longtune
