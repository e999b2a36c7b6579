#include "ops/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/cpu/exp.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

template <class Float>
struct Case {
  std::int64_t T, F;
  std::vector<Float> gate, up, dy, y, dgate, dup;

  Case(std::int64_t T_in, std::int64_t F_in)
      : T(T_in),
        F(F_in),
        gate(rounded_to<Float>(random_values(T * F, 1, 6))),
        up(rounded_to<Float>(random_values(T * F, 2))),
        dy(rounded_to<Float>(random_values(T * F, 3))),
        y(gate.size()),
        dgate(gate.size()),
        dup(gate.size()) {}

  SwigluForward forward() {
    return {.y = view(y, {T, F}),
            .gate = view(std::as_const(gate), {T, F}),
            .up = view(std::as_const(up), {T, F})};
  }

  SwigluBackward backward() {
    return {.dgate = view(dgate, {T, F}),
            .dup = view(dup, {T, F}),
            .dy = view(std::as_const(dy), {T, F}),
            .gate = view(std::as_const(gate), {T, F}),
            .up = view(std::as_const(up), {T, F})};
  }
};

TEST(FastExp, IsWithinItsStatedError) {
  for (int i = 0; i <= 350'000; ++i) {
    const float x = -87.0F + 175.0F * static_cast<float>(i) / 350'000.0F;
    const double truth = std::exp(double{x});
    ASSERT_LE(std::abs(cpu::fast_exp(x) - truth), 3e-7 * truth) << "at " << x;
  }
  EXPECT_EQ(cpu::fast_exp(0), 1.0F);
  EXPECT_LT(cpu::fast_exp(-std::numeric_limits<float>::infinity()), 1e-37F);
  EXPECT_TRUE(std::isfinite(cpu::fast_exp(1000)));
  EXPECT_TRUE(std::isnan(cpu::fast_exp(NAN)));
}

template <class Float>
class Swiglu : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Swiglu, Floats);

TEST(SwigluNumbers, MatchNumbersWorkedByHand) {
  Case<float> c(1, 2);
  c.gate = {0, std::log(3.0F)};
  c.up = {5, 2};
  swiglu_forward(c.forward());
  EXPECT_EQ(c.y[0], 0);
  EXPECT_FLOAT_EQ(c.y[1], std::log(3.0F) * 0.75F * 2);
}

TYPED_TEST(Swiglu, AgreesWithTheReferenceOnRaggedSizes) {
  for (const std::int64_t F : {1, 7, 16, 17, 1536}) {
    Case<TypeParam> truth(3, F);
    ref::swiglu_forward(truth.forward());
    ref::swiglu_backward(truth.backward());
    with_each_isa([&] {
      Case<TypeParam> fast(3, F);
      swiglu_forward(fast.forward());
      expect_near(fast.y, truth.y, tolerance<TypeParam>(1e-6F), "y");
      swiglu_backward(fast.backward());
      expect_near(fast.dgate, truth.dgate, tolerance<TypeParam>(2e-6F), "dgate");
      expect_near(fast.dup, truth.dup, tolerance<TypeParam>(1e-6F), "dup");
    });
  }
}

TYPED_TEST(Swiglu, BackwardWorksInPlaceAndForAnyThreadCount) {
  Case<TypeParam> apart(3, 19);
  Case<TypeParam> in_place(3, 19);
  use_threads(1);
  swiglu_backward(apart.backward());
  use_threads(4);
  auto args = in_place.backward();
  args.dgate = view(in_place.gate, {3, 19});
  args.dup = view(in_place.up, {3, 19});
  swiglu_backward(args);
  EXPECT_EQ(widened(in_place.gate), widened(apart.dgate));
  EXPECT_EQ(widened(in_place.up), widened(apart.dup));
}

TEST(SwigluGradient, MatchesCentralDifferences) {
  Case<float> c(2, 7);
  swiglu_backward(c.backward());
  const auto check = [&c](std::vector<float>& input, const std::vector<float>& gradient) {
    const auto loss = [&c] {
      ref::swiglu_forward(c.forward());
      double sum = 0;
      for (std::size_t i = 0; i < c.y.size(); ++i) {
        sum += static_cast<double>(c.y[i]) * c.dy[i];
      }
      return sum;
    };
    for (std::size_t i = 0; i < input.size(); ++i) {
      const float value = input[i];
      constexpr float kStep = 1e-2F;
      input[i] = value + kStep;
      const double up = loss();
      input[i] = value - kStep;
      const double down = loss();
      input[i] = value;
      EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 1e-3) << "at " << i;
    }
  };
  check(c.gate, c.dgate);
  check(c.up, c.dup);
}

TEST(SwigluErrors, NameBothShapes) {
  Case<float> c(2, 8);
  auto args = c.forward();
  args.up.shape = {2, 4};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { swiglu_forward(args); }),
            "[swiglu] up f32 (2, 4) does not match gate f32 (2, 8): expected f32 (2, 8)");
  auto backward = c.backward();
  backward.dy.dtype = DType::kBf16;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { swiglu_backward(backward); }),
            "[swiglu] dy bf16 (2, 8) does not match gate f32 (2, 8): expected f32 (2, 8)");
}

}  // namespace
}  // namespace longtune::ops
