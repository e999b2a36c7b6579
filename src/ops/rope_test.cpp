#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

struct Table {
  std::vector<float> frequencies, cos, sin;

  RopeTable args(std::int64_t T, std::int64_t first_position) {
    const auto half = static_cast<std::int64_t>(frequencies.size());
    cos.resize(static_cast<std::size_t>(T * half));
    sin.resize(cos.size());
    return {.cos = view(cos, {T, half}),
            .sin = view(sin, {T, half}),
            .frequencies = view(std::as_const(frequencies), {half}),
            .first_position = first_position};
  }
};

TEST(RopeTable, RoundsTheAngleToF32AndIsExactFromThere) {
  Table table{.frequencies = {1.0F, 0.1F, 1.23e-4F}, .cos = {}, .sin = {}};
  auto args = table.args(2, 1'000'003);
  args.scale = 1.25F;
  rope_table(args);
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < 3; ++i) {
      const float angle = (1'000'003.0F + static_cast<float>(t)) * table.frequencies[i];
      EXPECT_EQ(table.cos[t * 3 + i], 1.25F * static_cast<float>(std::cos(double{angle})));
      EXPECT_EQ(table.sin[t * 3 + i], 1.25F * static_cast<float>(std::sin(double{angle})));
    }
  }
}

TEST(RopeTable, DoesNotDependOnWhereASegmentBeginsOrOnThreads) {
  Table whole{.frequencies = random_values(16, 1, 0.5F, 0.5F), .cos = {}, .sin = {}};
  Table part = whole;
  Table truth = whole;
  use_threads(3);
  rope_table(whole.args(20, 100));
  use_threads(1);
  rope_table(part.args(7, 113));
  ref::rope_table(truth.args(20, 100));
  EXPECT_EQ(whole.cos, truth.cos);
  EXPECT_EQ(whole.sin, truth.sin);
  EXPECT_TRUE(std::equal(part.cos.begin(), part.cos.end(), whole.cos.begin() + 13 * 16));
}

template <class Float>
struct Heads {
  std::int64_t T, H, D;
  std::vector<Float> x;
  Table table;

  Heads(std::int64_t T_in, std::int64_t H_in, std::int64_t D_in)
      : T(T_in),
        H(H_in),
        D(D_in),
        x(rounded_to<Float>(random_values(T * H * D, 9))),
        table{.frequencies = random_values(D / 2, 8, 0.5F, 0.5F), .cos = {}, .sin = {}} {
    rope_table(table.args(T, 5));
  }

  RopeApply args(RopeDirection direction) {
    return {.x = view(x, {T, H, D}),
            .cos = view(std::as_const(table.cos), {T, D / 2}),
            .sin = view(std::as_const(table.sin), {T, D / 2}),
            .direction = direction};
  }
};

template <class Float>
class RopeApplied : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(RopeApplied, Floats);

TYPED_TEST(RopeApplied, AgreesWithTheReferenceOnRaggedSizes) {
  for (const auto direction : {RopeDirection::kForward, RopeDirection::kBackward}) {
    for (const std::int64_t D : {2, 6, 16, 34, 64}) {
      Heads<TypeParam> truth(5, 3, D);
      ref::rope_apply(truth.args(direction));
      with_each_isa([&] {
        Heads<TypeParam> fast(5, 3, D);
        rope_apply(fast.args(direction));
        expect_near(fast.x, truth.x, tolerance<TypeParam>(1e-6F), "x");
      });
    }
  }
}

TEST(RopeNumbers, TurnPairsHalfTheHeadApart) {
  Heads<float> heads(1, 1, 4);
  heads.x = {1, 2, 3, 4};
  heads.table.cos = {0, 0.6F};
  heads.table.sin = {1, 0.8F};
  rope_apply(heads.args(RopeDirection::kForward));
  const std::vector<float> expected{-3, 2 * 0.6F - 4 * 0.8F, 1, 4 * 0.6F + 2 * 0.8F};
  expect_near(heads.x, expected, 1e-6F, "x");
}

TEST(RopeGradient, IsTheTransposedRotation) {
  // The rotation R is linear, so <R x, g> = <x, R^T g> for every x and g says all.
  Heads<float> forward(4, 2, 6);
  Heads<float> backward(4, 2, 6);
  const std::vector<float> x = forward.x;
  const std::vector<float> gradient = random_values(4 * 2 * 6, 77);
  backward.x = gradient;
  rope_apply(forward.args(RopeDirection::kForward));
  rope_apply(backward.args(RopeDirection::kBackward));
  double turned = 0;
  double transposed = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    turned += static_cast<double>(forward.x[i]) * gradient[i];
    transposed += static_cast<double>(x[i]) * backward.x[i];
  }
  EXPECT_NEAR(turned, transposed, 1e-5);
  EXPECT_GT(std::abs(turned), 1e-2);
}

TEST(RopeErrors, NameBothShapes) {
  Heads<float> heads(2, 1, 8);
  auto args = heads.args(RopeDirection::kForward);
  args.sin.shape = {2, 8};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rope_apply(args); }),
            "[rope_apply] sin f32 (2, 8) does not match x f32 (2, 1, 8): expected f32 (2, 4)");
  args = heads.args(RopeDirection::kForward);
  args.x.shape = {2, 1, 7};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rope_apply(args); }),
            "[rope_apply] x f32 (2, 1, 7) has a head dimension of 7, which does not fall into "
            "pairs");
  auto table = heads.table.args(2, 0);
  table.frequencies.shape = {3};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rope_table(table); }),
            "[rope_table] frequencies f32 (3) does not match cos f32 (2, 4): expected f32 (4)");
}

}  // namespace
}  // namespace longtune::ops
