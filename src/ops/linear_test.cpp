#include "ops/linear.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "ops/test_weights.h"
#include "support/expect_error.h"

namespace longtune::ops {
namespace {

// Inputs and outputs of both passes, for activations of type Float.
template <class Float>
struct Case {
  std::int64_t T, N, K;
  WeightView weight;
  std::vector<Float> x, residual, dy;
  std::vector<float> bias;
  std::vector<float> u, a, b;  // the adapter's, of rank kRank
  std::vector<Float> y, dx;

  static constexpr std::int64_t kRank = 5;

  Case(std::int64_t tokens, const WeightView& w)
      : T(tokens),
        N(w.N),
        K(w.K),
        weight(w),
        x(rounded_to<Float>(random_values(T * K, 1))),
        residual(rounded_to<Float>(random_values(T * N, 2))),
        dy(rounded_to<Float>(random_values(T * N, 3))),
        bias(random_values(N, 4)),
        u(random_values(T * kRank, 6)),
        a(random_values(kRank * K, 7)),
        b(random_values(N * kRank, 8)),
        y(static_cast<std::size_t>(T * N)),
        dx(rounded_to<Float>(random_values(T * K, 5))) {}

  LinearForward forward() {
    return {.y = view(y, {T, N}),
            .x = view(std::as_const(x), {T, K}),
            .weight = weight,
            .bias = view(std::as_const(bias), {N}),
            .residual = view(std::as_const(residual), {T, N}),
            .adapter = {.u = view(std::as_const(u), {T, kRank}),
                        .b = view(std::as_const(b), {N, kRank}),
                        .scale = 0.5F}};
  }

  LinearBackward backward() {
    return {.dx = view(dx, {T, K}),
            .dy = view(std::as_const(dy), {T, N}),
            .weight = weight,
            .accumulate = true,
            .adapter = {.du = view(std::as_const(u), {T, kRank}),
                        .a = view(std::as_const(a), {kRank, K})}};
  }
};

TEST(Linear, MatchesNumbersWorkedByHand) {
  const std::vector<float> w = {1, 2, 3, 4, 5, 6};  // (3, 2)
  const WeightView weight =
      weight_view(WeightFormat::kF32, 3, 2, reinterpret_cast<const std::byte*>(w.data()));
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    Case<float> c(1, weight);
    c.u = {2, 0, 0, 0, 3};
    c.b.assign(3 * 5, 1);
    c.b[4] = 11;
    c.a.assign(5 * 2, 1);
    c.a[9] = 5;
    c.x = {10, 100};
    c.bias = {0.5F, 0, -1};
    c.residual = {1000, 2000, 3000};
    linear_forward(c.forward());
    EXPECT_EQ(c.y, (std::vector<float>{1210.5F + 17.5F, 2430 + 2.5F, 3649 + 2.5F}));
    c.dy = {1, 10, 100};
    c.dx = {7, 8};
    linear_backward(c.backward());
    EXPECT_EQ(c.dx, (std::vector<float>{531 + 7 + 5, 642 + 8 + 17}));
    auto overwriting = c.backward();
    overwriting.accumulate = false;
    overwriting.adapter = {};
    linear_backward(overwriting);
    EXPECT_EQ(c.dx, (std::vector<float>{531, 642}));
  }
}

template <class Float>
void expect_agreement(WeightFormat format,
                      std::int64_t T,
                      std::int64_t N,
                      std::int64_t K,
                      WeightOrder order = WeightOrder::kRows) {
  const TestWeight weight(format, N, K, 9, order);
  const std::string what = fmt::format("{} {}{} ({}, {}) T {} x{}",
                                       name_of(selected_isa()),
                                       name_of(format),
                                       order == WeightOrder::kPanels ? " panels" : "",
                                       N,
                                       K,
                                       T,
                                       sizeof(Float));
  const SeenWeight<Float> seen(weight.view());
  Case<Float> fast(T, weight.view());
  Case<Float> truth(T, seen.view());
  linear_forward(fast.forward());
  ref::linear_forward(truth.forward());
  expect_near(fast.y, truth.y, tolerance<Float>(1e-5F), what + " y");
  linear_backward(fast.backward());
  ref::linear_backward(truth.backward());
  expect_near(fast.dx, truth.dx, tolerance<Float>(1e-5F), what + " dx");
}

TEST(Linear, AgreesWithTheReferenceInEveryFormatOnRaggedSizes) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t block = block_values(format);
      for (const std::int64_t T : {1, 5, 13}) {
        const std::int64_t K = block == 1 ? 37 : block;
        expect_agreement<float>(format, T, 19, K);
        expect_agreement<BFloat16>(format, T, 19, K);
      }
      expect_agreement<float>(format, 3, 31, block == 1 ? 300 : 320);
      expect_agreement<BFloat16>(format, 7, 531, block == 1 ? 1 : block);
    }
  }
}

TEST(Linear, AgreesWithTheReferenceOnWeightsInPanels) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t block = block_values(format);
      for (const std::int64_t T : {1, 5}) {
        expect_agreement<float>(format, T, 48, block == 1 ? 37 : block, WeightOrder::kPanels);
        expect_agreement<BFloat16>(format, T, 304, block == 1 ? 301 : 320, WeightOrder::kPanels);
      }
    }
  }
}

// Both orders hold the same numbers, and one row takes a way of its own through panels.
TEST(Linear, TheOrderOfTheWeightChangesNoBit) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t K = block_values(format) == 1 ? 555 : 576;
      const TestWeight rows(format, 336, K, 9);
      const TestWeight panels(format, 336, K, 9, WeightOrder::kPanels);
      ASSERT_EQ(panels.view().order, WeightOrder::kPanels);
      Case<BFloat16> truth(7, rows.view());
      Case<BFloat16> c(7, panels.view());
      linear_forward(truth.forward());
      linear_backward(truth.backward());
      linear_forward(c.forward());
      linear_backward(c.backward());
      const std::vector<float> y = widened(truth.y);
      EXPECT_EQ(widened(c.y), y) << name_of(format);
      EXPECT_EQ(widened(c.dx), widened(truth.dx)) << name_of(format);
      for (const int threads : {1, 2, 3, 8}) {
        omp_set_num_threads(threads);
        Case<BFloat16> one(1, panels.view());
        one.x.assign(truth.x.begin() + 4 * K, truth.x.begin() + 5 * K);
        one.residual.assign(truth.residual.begin() + 4 * 336, truth.residual.begin() + 5 * 336);
        one.u.assign(truth.u.begin() + 4 * 5, truth.u.begin() + 5 * 5);
        linear_forward(one.forward());
        EXPECT_EQ(widened(one.y), std::vector<float>(y.begin() + 4 * 336, y.begin() + 5 * 336))
            << name_of(isa) << " " << name_of(format) << " " << threads << " threads";
      }
      omp_set_num_threads(omp_get_num_procs());
    }
  }
}

TEST(Linear, InputAndOutputMayDifferInType) {
  const TestWeight weight(WeightFormat::kQ4_1, 33, 64, 9);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    const SeenWeight<BFloat16> seen(weight.view());
    Case<BFloat16> narrow(4, weight.view());
    Case<float> wide(4, weight.view());
    wide.x = widened(narrow.x);
    auto args = wide.forward();
    args.residual = {};
    args.weight = seen.view();
    ref::linear_forward(args);
    const std::vector<float> truth = wide.y;
    args.x = view(std::as_const(narrow.x), {4, 64});
    args.weight = weight.view();
    linear_forward(args);
    expect_near(wide.y, truth, 1e-5F, std::string("y, ") + name_of(isa));
  }
}

// Sizes beyond a block of the sum and beyond what one thread works on at a time.
TEST(Linear, ARowHasTheSameBitsInAnyCompanyAndForAnyThreadCount) {
  const TestWeight weight(WeightFormat::kNf4, 330, 576, 9);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    omp_set_num_threads(1);
    Case<float> all(101, weight.view());
    linear_forward(all.forward());
    linear_backward(all.backward());
    for (const int threads : {2, 3, 5}) {
      omp_set_num_threads(threads);
      Case<float> again(101, weight.view());
      linear_forward(again.forward());
      linear_backward(again.backward());
      EXPECT_EQ(again.y, all.y) << threads << " threads";
      EXPECT_EQ(again.dx, all.dx) << threads << " threads";
    }
    for (const std::int64_t row : {0, 17, 100}) {
      Case<float> one(1, weight.view());
      one.x.assign(all.x.begin() + row * 576, all.x.begin() + (row + 1) * 576);
      one.residual.assign(all.residual.begin() + row * 330, all.residual.begin() + (row + 1) * 330);
      one.u.assign(all.u.begin() + row * 5, all.u.begin() + (row + 1) * 5);
      linear_forward(one.forward());
      EXPECT_TRUE(std::equal(one.y.begin(), one.y.end(), all.y.begin() + row * 330)) << row;
    }
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(Linear, BackwardMatchesCentralDifferences) {
  const TestWeight weight(WeightFormat::kQ8_0, 5, 32, 9);
  Case<float> c(2, weight.view());
  auto args = c.backward();
  args.accumulate = false;
  args.adapter = {};  // lora_test.cpp has the adapter's
  linear_backward(args);
  const auto loss = [&c] {
    ref::linear_forward(c.forward());
    double sum = 0;
    for (std::size_t i = 0; i < c.y.size(); ++i) {
      sum += static_cast<double>(c.y[i]) * c.dy[i];
    }
    return sum;
  };
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    const float x = c.x[i];
    c.x[i] = x + 1;
    const double up = loss();
    c.x[i] = x - 1;
    const double down = loss();
    c.x[i] = x;
    EXPECT_NEAR(c.dx[i], (up - down) / 2, 1e-5) << "at " << i;
  }
}

TEST(Linear, NoTokensAreNoWork) {
  const TestWeight weight(WeightFormat::kF32, 3, 4, 9);
  Case<float> c(0, weight.view());
  EXPECT_NO_THROW(linear_forward(c.forward()));
  EXPECT_NO_THROW(linear_backward(c.backward()));
}

TEST(Linear, NamesWhatDoesNotFit) {
  const TestWeight weight(WeightFormat::kQ4_1, 3, 32, 9);
  Case<float> c(2, weight.view());
  const auto refused = [](const LinearForward& args) { return [args] { linear_forward(args); }; };
  auto args = c.forward();
  args.x.shape[1] = 33;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] weight q4_1 (3, 32) does not match x f32 (2, 33) and y f32 (2, 3)");
  args = c.forward();
  args.y.shape[0] = 1;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] weight q4_1 (3, 32) does not match x f32 (2, 32) and y f32 (1, 3)");
  args = c.forward();
  args.bias.shape[0] = 4;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] bias f32 (4) does not match y f32 (2, 3): expected f32 (3)");
  args = c.forward();
  args.residual.dtype = DType::kBf16;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] residual bf16 (2, 3) does not match y f32 (2, 3): expected f32 (2, 3)");
  args = c.forward();
  args.adapter.u.shape[0] = 1;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] u f32 (1, 5) does not match y f32 (2, 3): expected f32 (2, 5)");
  args = c.forward();
  args.adapter.b.shape[0] = 4;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] b f32 (4, 5) does not match u f32 (2, 5): expected f32 (3, 5)");
  args = c.forward();
  args.adapter.u.rank = 1;
  expect_error(refused(args), ErrorCode::kInvalidArgument, "[linear] u f32 (2) must be a matrix");
  args = c.forward();
  args.x.dtype = DType::kI32;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[linear] x i32 (2, 32) must be f32 or bf16 with 2 dimensions");
  args = c.forward();
  args.x.device = DeviceKind::kCuda;
  expect_error(refused(args), ErrorCode::kUnsupported, "[linear] no kernel for x f32 (2, 32)");
  auto backward = c.backward();
  backward.adapter.a.shape[1] = 31;
  expect_error([&] { linear_backward(backward); },
               ErrorCode::kInvalidArgument,
               "[linear] a f32 (5, 31) does not match du f32 (2, 5): expected f32 (5, 32)");
  backward = c.backward();
  backward.dx.shape[1] = 31;
  expect_error([&] { linear_backward(backward); },
               ErrorCode::kInvalidArgument,
               "[linear] weight q4_1 (3, 32) does not match dx f32 (2, 31) and dy f32 (2, 3)");
}

}  // namespace
}  // namespace longtune::ops
