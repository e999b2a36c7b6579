#include "ops/embedding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "ops/test_values.h"

namespace longtune::ops {
namespace {

// Three rows of 32 values in Q8_0, which has a block of 32: a scale of 0.5 and whole numbers.
std::vector<std::byte> blocks_of_q8() {
  std::vector<std::byte> table(3 * 34);
  for (std::size_t row = 0; row < 3; ++row) {
    const std::uint16_t half = 0x3800;
    std::memcpy(&table[row * 34], &half, sizeof half);
    for (std::size_t i = 0; i < 32; ++i) {
      table[row * 34 + 2 + i] = static_cast<std::byte>(row * 32 + i);
    }
  }
  return table;
}

template <class Float>
struct Case {
  std::vector<std::int32_t> tokens{2, 0, 2};
  std::vector<Float> y = std::vector<Float>(3 * 32);
  std::vector<std::byte> table = blocks_of_q8();

  EmbeddingForward args() {
    return {.y = view(y, {3, 32}),
            .tokens = view(std::as_const(tokens), {3}),
            .table = {.data = table.data(), .N = 3, .K = 32, .format = WeightFormat::kQ8_0}};
  }
};

template <class Float>
class Embedding : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Embedding, Floats);

TYPED_TEST(Embedding, UnpacksTheRowsOfTheTokens) {
  Case<TypeParam> fast;
  Case<TypeParam> truth;
  embedding_forward(fast.args());
  ref::embedding_forward(truth.args());
  EXPECT_EQ(widened(fast.y), widened(truth.y));
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(static_cast<float>(fast.y[i]), 0.5F * static_cast<float>(64 + i));
    EXPECT_EQ(static_cast<float>(fast.y[32 + i]), 0.5F * static_cast<float>(i));
  }
}

TEST(EmbeddingWide, TakesRowsLongerThanOneStep) {
  constexpr std::int64_t kWidth = 2050;
  const std::vector<float> table = random_values(2 * kWidth, 1);
  std::vector<float> y(kWidth);
  const std::vector<std::int32_t> tokens{1};
  embedding_forward({.y = view(y, {1, kWidth}),
                     .tokens = view(tokens, {1}),
                     .table = {.data = reinterpret_cast<const std::byte*>(table.data()),
                               .N = 2,
                               .K = kWidth,
                               .format = WeightFormat::kF32}});
  EXPECT_TRUE(std::equal(y.begin(), y.end(), table.begin() + kWidth));
}

TEST(EmbeddingErrors, NameTheTokenAndTheShapes) {
  Case<float> c;
  c.tokens[1] = 3;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { embedding_forward(c.args()); }),
            "[embedding] token 3 at row 1 is outside the vocabulary of 3");
  c.tokens[1] = -1;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { embedding_forward(c.args()); }),
            "[embedding] token -1 at row 1 is outside the vocabulary of 3");
  auto args = c.args();
  args.table.K = 64;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { embedding_forward(args); }),
            "[embedding] table q8_0 (3, 64) does not match the last dimension of y f32 (3, 32)");
}

}  // namespace
}  // namespace longtune::ops
