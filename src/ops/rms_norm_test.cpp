#include "ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

template <class Float>
struct Case {
  std::int64_t T, C;
  std::vector<Float> x, dy, residual, y, dx;
  std::vector<float> weight, rstd;

  Case(std::int64_t T_in, std::int64_t C_in)
      : T(T_in),
        C(C_in),
        x(rounded_to<Float>(random_values(T * C, 1))),
        dy(rounded_to<Float>(random_values(T * C, 2))),
        residual(rounded_to<Float>(random_values(T * C, 3))),
        y(x.size()),
        dx(x.size()),
        weight(random_values(C, 4, 0.2F, 1)),
        rstd(static_cast<std::size_t>(T)) {}

  RmsNormForward forward() {
    return {.y = view(y, {T, C}),
            .rstd = view(rstd, {T}),
            .x = view(std::as_const(x), {T, C}),
            .weight = view(std::as_const(weight), {C})};
  }

  RmsNormBackward backward() {
    return {.dx = view(dx, {T, C}),
            .dy = view(std::as_const(dy), {T, C}),
            .x = view(std::as_const(x), {T, C}),
            .rstd = view(std::as_const(rstd), {T}),
            .weight = view(std::as_const(weight), {C}),
            .residual = view(std::as_const(residual), {T, C})};
  }
};

template <class Float>
class RmsNorm : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(RmsNorm, Floats);

TEST(RmsNormNumbers, MatchNumbersWorkedByHand) {
  Case<float> c(1, 2);
  c.x = {3, 4};
  c.weight = {1, 2};
  auto args = c.forward();
  args.eps = 0;
  rms_norm_forward(args);
  const float rstd = 1 / std::sqrt(12.5F);
  EXPECT_FLOAT_EQ(c.rstd[0], rstd);
  EXPECT_FLOAT_EQ(c.y[0], 3 * rstd);
  EXPECT_FLOAT_EQ(c.y[1], 8 * rstd);
}

TYPED_TEST(RmsNorm, AgreesWithTheReferenceOnRaggedSizes) {
  for (const std::int64_t C : {1, 7, 16, 17, 576}) {
    Case<TypeParam> truth(5, C);
    ref::rms_norm_forward(truth.forward());
    ref::rms_norm_backward(truth.backward());
    with_each_isa([&] {
      Case<TypeParam> fast(5, C);
      rms_norm_forward(fast.forward());
      expect_near(fast.y, truth.y, tolerance<TypeParam>(2e-6F), "y");
      expect_near(fast.rstd, truth.rstd, 1e-6F, "rstd");
      rms_norm_backward(fast.backward());
      expect_near(fast.dx, truth.dx, tolerance<TypeParam>(4e-6F), "dx");
    });
  }
}

TYPED_TEST(RmsNorm, WorksInPlace) {
  Case<TypeParam> apart(3, 19);
  Case<TypeParam> in_place(3, 19);
  rms_norm_forward(apart.forward());
  rms_norm_backward(apart.backward());
  auto backward = in_place.backward();
  in_place.rstd = apart.rstd;
  backward.dx = view(in_place.residual, {3, 19});
  rms_norm_backward(backward);
  EXPECT_EQ(widened(in_place.residual), widened(apart.dx));

  Case<TypeParam> over_dy(3, 19);
  over_dy.rstd = apart.rstd;
  backward = over_dy.backward();
  backward.dx = view(over_dy.dy, {3, 19});
  rms_norm_backward(backward);
  EXPECT_EQ(widened(over_dy.dy), widened(apart.dx));

  auto forward = in_place.forward();
  forward.y = view(in_place.x, {3, 19});
  rms_norm_forward(forward);
  EXPECT_EQ(widened(in_place.x), widened(apart.y));
}

TEST(RmsNormGradient, MatchesCentralDifferences) {
  Case<float> c(3, 5);
  rms_norm_forward(c.forward());
  rms_norm_backward(c.backward());
  const auto loss = [&c] {
    ref::rms_norm_forward(c.forward());
    double sum = 0;
    for (std::size_t i = 0; i < c.y.size(); ++i) {
      sum += static_cast<double>(c.y[i]) * c.dy[i] + static_cast<double>(c.x[i]) * c.residual[i];
    }
    return sum;
  };
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    const float x = c.x[i];
    constexpr float kStep = 1e-2F;
    c.x[i] = x + kStep;
    const double up = loss();
    c.x[i] = x - kStep;
    const double down = loss();
    c.x[i] = x;
    EXPECT_NEAR(c.dx[i], (up - down) / (2 * kStep), 2e-3) << "at " << i;
  }
}

TYPED_TEST(RmsNorm, GivesTheSameBitsForAnyThreadCount) {
  Case<TypeParam> one(33, 65);
  Case<TypeParam> four(33, 65);
  use_threads(1);
  rms_norm_forward(one.forward());
  rms_norm_backward(one.backward());
  use_threads(4);
  rms_norm_forward(four.forward());
  rms_norm_backward(four.backward());
  EXPECT_EQ(widened(one.y), widened(four.y));
  EXPECT_EQ(widened(one.dx), widened(four.dx));
}

TYPED_TEST(RmsNorm, GivesTheSameBitsForAnyInstructionSet) {
  Case<TypeParam> portable(5, 61);
  Case<TypeParam> best(5, 61);
  select_isa(Isa::kPortable);
  rms_norm_forward(portable.forward());
  rms_norm_backward(portable.backward());
  select_isa(best_isa());
  rms_norm_forward(best.forward());
  rms_norm_backward(best.backward());
  EXPECT_EQ(widened(portable.y), widened(best.y));
  EXPECT_EQ(widened(portable.dx), widened(best.dx));
}

TYPED_TEST(RmsNorm, KeepsNanAndTheSignOfInfinity) {
  Case<TypeParam> c(1, 40);
  c.residual[3] = TypeParam(NAN);
  c.residual[20] = TypeParam(-INFINITY);
  rms_norm_forward(c.forward());
  rms_norm_backward(c.backward());
  EXPECT_TRUE(std::isnan(static_cast<float>(c.dx[3])));
  EXPECT_EQ(static_cast<float>(c.dx[20]), -INFINITY);
  EXPECT_TRUE(std::isfinite(static_cast<float>(c.dx[4])));
}

TEST(RmsNormErrors, NameBothShapes) {
  Case<float> c(2, 8);
  auto args = c.forward();
  args.weight.shape = {4};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rms_norm_forward(args); }),
            "[rms_norm] weight f32 (4) does not match x f32 (2, 8): expected f32 (8)");
  auto backward = c.backward();
  backward.residual.dtype = DType::kBf16;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rms_norm_backward(backward); }),
            "[rms_norm] residual bf16 (2, 8) does not match x f32 (2, 8): expected f32 (2, 8)");
  args = c.forward();
  args.x.device = DeviceKind::kCuda;
  EXPECT_EQ(error_of(ErrorCode::kUnsupported, [&] { rms_norm_forward(args); }),
            "[rms_norm] no kernel for x f32 (2, 8) on its device");
  args = c.forward();
  args.x.dtype = DType::kI32;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { rms_norm_forward(args); }),
            "[rms_norm] x i32 (2, 8) must be f32 or bf16 with 2 dimensions");
}

}  // namespace
}  // namespace longtune::ops
