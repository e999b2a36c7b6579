#include "ops/kv_quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

// Rows of bf16, the page that they become, and what it reads as.
struct Case {
  std::int64_t R, D;
  std::vector<BFloat16> x, y;
  std::vector<std::byte> bytes;

  Case(std::int64_t rows, std::int64_t width, const std::vector<float>& values)
      : R(rows),
        D(width),
        x(rounded_to<BFloat16>(values)),
        y(x.size()),
        bytes(static_cast<std::size_t>(rows * (width + 4))) {}

  TensorView page() {
    return {.data = bytes.data(), .shape = {R * (D + 4)}, .rank = 1, .dtype = DType::kI8};
  }

  KvQuantise quantise() { return {.page = page(), .x = view(std::as_const(x), {R, D})}; }

  KvDequantise dequantise() { return {.y = view(y, {R, D}), .page = page()}; }

  [[nodiscard]] int q(std::int64_t i) const {
    return static_cast<std::int8_t>(bytes[static_cast<std::size_t>(i)]);
  }

  [[nodiscard]] float scale(std::int64_t row) const {
    float result = 0;
    std::memcpy(&result, bytes.data() + R * D + 4 * row, 4);
    return result;
  }
};

TEST(KvQuantise, MatchesNumbersWorkedByHand) {
  // Rows of scale 1/2, with halves of it to round to even; of one value; of zeros; of the largest.
  Case c(4, 4, {-63.5F, 0.25F, 0.75F, 10, 0, 0, -3, 0, 0, 0, 0, 0, 0x1.FEp127F, 1, -0x1p127F, 0});
  kv_quantise(c.quantise());
  kv_dequantise(c.dequantise());
  EXPECT_EQ(c.scale(0), 0.5F);
  EXPECT_EQ(c.scale(1), 3.0F / 127);
  EXPECT_EQ(c.scale(2), 0);
  const std::vector<int> expected = {-127, 0, 2, 20, 0, 0, -127, 0, 0, 0, 0, 0, 127, 0, -64, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(c.q(static_cast<std::int64_t>(i)), expected[i]) << i;
  }
  EXPECT_EQ(widened(std::vector(c.y.begin(), c.y.begin() + 12)),
            (std::vector<float>{-63.5F, 0, 1, 10, 0, 0, -3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(static_cast<float>(c.y[12]), 0x1.FEp127F);
}

TEST(KvQuantise, ARowThatIsNotFiniteReadsAsNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Case c(4, 2, {1, kInfinity, NAN, 0, -kInfinity, NAN, 1, 2});
  kv_quantise(c.quantise());
  kv_dequantise(c.dequantise());
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(std::isnan(static_cast<float>(c.y[static_cast<std::size_t>(i)]))) << i;
  }
  EXPECT_EQ(static_cast<float>(c.y[7]), 2);
}

TEST(KvQuantise, HasTheBytesOfTheReferenceForAnyThreadCount) {
  for (const auto& [R, D] : {std::pair{4, 1}, {12, 10}, {128, 16}, {1024, 64}, {256, 127}}) {
    for (const float spread : {1.0F, 1e-39F, 3e38F}) {
      const std::vector<float> x = random_values(std::int64_t{R} * D, 7, spread);
      Case truth(R, D, x);
      ref::kv_quantise(truth.quantise());
      ref::kv_dequantise(truth.dequantise());
      for (const int threads : {1, 3}) {
        use_threads(threads);
        Case fast(R, D, x);
        kv_quantise(fast.quantise());
        kv_dequantise(fast.dequantise());
        EXPECT_EQ(fast.bytes, truth.bytes) << R << " " << D << " " << spread;
        EXPECT_EQ(widened(fast.y), widened(truth.y)) << R << " " << D << " " << spread;
      }
    }
  }
  use_threads(available_cores());
}

TEST(KvQuantise, IsWithinHalfAScaleAndARounding) {
  Case c(128, 64, random_values(std::int64_t{128} * 64, 3, 5));
  kv_quantise(c.quantise());
  kv_dequantise(c.dequantise());
  double worst = 0;
  for (std::int64_t i = 0; i < c.R * c.D; ++i) {
    const auto x = static_cast<float>(c.x[static_cast<std::size_t>(i)]);
    const auto y = static_cast<float>(c.y[static_cast<std::size_t>(i)]);
    const double half = c.scale(i / c.D) / 2;
    worst = std::max(worst, std::abs(y - x) / half);
    ASSERT_LE(std::abs(y - x), 1.0001 * half + 0x1p-8 * std::abs(y)) << i;
  }
  EXPECT_GT(worst, 0.9);
}

TEST(KvQuantise, NamesWhatDoesNotFit) {
  Case c(4, 2, std::vector<float>(8));
  auto quantise = c.quantise();
  quantise.page.shape = {9};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kv_quantise(quantise); }),
            "[kv_quantise] page int8 (9) does not match x bf16 (4, 2): expected int8 (24)");
  auto dequantise = c.dequantise();
  dequantise.y.dtype = DType::kF32;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kv_dequantise(dequantise); }),
            "[kv_dequantise] y f32 (4, 2) does not match y f32 (4, 2): expected bf16 (4, 2)");
}

}  // namespace
}  // namespace longtune::ops
