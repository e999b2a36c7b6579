#include "ops/lora.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "ops/test_weights.h"
#include "support/expect_error.h"

namespace longtune::ops {
namespace {

struct Dims {
  std::int64_t T, N, K, R;
};

// Inputs and outputs of both passes, for activations of type Float.
template <class Float>
struct Case {
  Dims d;
  Dropout dropout;
  std::vector<Float> x, dy;
  std::vector<float> a, b;
  std::vector<Float> dx;
  std::vector<float> u, du, da, db;

  explicit Case(const Dims& dims, float p = 0)
      : d(dims),
        dropout{.p = p, .key = 77, .first_row = 5},
        x(rounded_to<Float>(random_values(d.T * d.K, 1))),
        dy(rounded_to<Float>(random_values(d.T * d.N, 2))),
        a(random_values(d.R * d.K, 3)),
        b(random_values(d.N * d.R, 4)),
        dx(rounded_to<Float>(random_values(d.T * d.K, 6))),
        u(static_cast<std::size_t>(d.T * d.R), NAN),
        du(u),
        da(random_values(d.R * d.K, 7)),
        db(random_values(d.N * d.R, 8)) {}

  LoraForward forward() {
    return {.u = view(u, {d.T, d.R}),
            .x = view(std::as_const(x), {d.T, d.K}),
            .a = view(std::as_const(a), {d.R, d.K}),
            .dropout = dropout};
  }

  LoraBackward backward() {
    return {.da = view(da, {d.R, d.K}),
            .db = view(db, {d.N, d.R}),
            .du = view(du, {d.T, d.R}),
            .dy = view(std::as_const(dy), {d.T, d.N}),
            .x = view(std::as_const(x), {d.T, d.K}),
            .u = view(std::as_const(u), {d.T, d.R}),
            .a = view(std::as_const(a), {d.R, d.K}),
            .b = view(std::as_const(b), {d.N, d.R}),
            .scale = 0.5F,
            .dropout = dropout};
  }

  LoraInputBackward input_backward() {
    return {.dx = view(dx, {d.T, d.K}),
            .du = view(std::as_const(du), {d.T, d.R}),
            .a = view(std::as_const(a), {d.R, d.K}),
            .dropout = dropout};
  }
};

TEST(Lora, MatchesNumbersWorkedByHand) {
  Case<float> c({.T = 1, .N = 2, .K = 2, .R = 1});
  c.x = {3, 4};
  c.a = {10, 100};  // u = 430
  c.b = {1, 2};
  lora_forward(c.forward());
  EXPECT_EQ(c.u, (std::vector<float>{430}));
  c.dy = {1, -2};
  c.da = c.dx = {1000, 2000};
  c.db = {1, 1};
  lora_backward(c.backward());
  lora_input_backward(c.input_backward());
  EXPECT_EQ(c.db, (std::vector<float>{1 + 215, 1 - 430}));
  EXPECT_EQ(c.du, (std::vector<float>{-1.5F}));
  EXPECT_EQ(c.da, (std::vector<float>{1000 - 4.5F, 2000 - 6}));
  EXPECT_EQ(c.dx, (std::vector<float>{1000 - 15, 2000 - 150}));
}

template <class Float>
void expect_agreement(const Dims& d, float p) {
  const std::string what = fmt::format("{} T {} N {} K {} R {} p {}, {} bytes",
                                       name_of(selected_isa()),
                                       d.T,
                                       d.N,
                                       d.K,
                                       d.R,
                                       p,
                                       sizeof(Float));
  Case<Float> fast(d, p);
  Case<Float> truth(d, p);
  lora_forward(fast.forward());
  ref::lora_forward(truth.forward());
  expect_near(fast.u, truth.u, 1e-5F, what + " u");
  lora_backward(fast.backward());
  ref::lora_backward(truth.backward());
  lora_input_backward(fast.input_backward());
  ref::lora_input_backward(truth.input_backward());
  expect_near(fast.db, truth.db, 2e-5F, what + " db");
  expect_near(fast.du, truth.du, 2e-5F, what + " du");
  expect_near(fast.da, truth.da, 2e-5F, what + " da");
  expect_near(fast.dx, truth.dx, tolerance<Float>(2e-5F), what + " dx");
}

TEST(Lora, AgreesWithTheReferenceOnRaggedSizes) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const float p : {0.0F, 0.3F}) {
      for (const Dims& d : {Dims{1, 1, 1, 1},
                            Dims{5, 19, 37, 4},
                            Dims{13, 70, 300, 16},
                            Dims{7, 33, 41, 64},
                            Dims{300, 5, 9, 7}}) {
        expect_agreement<float>(d, p);
        expect_agreement<BFloat16>(d, p);
      }
    }
  }
}

TEST(Lora, BackwardMatchesCentralDifferences) {
  Case<float> c({.T = 4, .N = 3, .K = 5, .R = 2}, 0.25F);
  for (auto* gradient : {&c.da, &c.db, &c.dx}) {
    std::fill(gradient->begin(), gradient->end(), 0.0F);
  }
  ref::lora_forward(c.forward());
  lora_backward(c.backward());
  lora_input_backward(c.input_backward());
  const auto loss = [&c] {  // of scale * u B^T, with gradient dy
    ref::lora_forward(c.forward());
    double sum = 0;
    for (std::int64_t t = 0; t < c.d.T; ++t) {
      for (std::int64_t n = 0; n < c.d.N; ++n) {
        for (std::int64_t r = 0; r < c.d.R; ++r) {
          sum += 0.5 * c.u[t * c.d.R + r] * c.b[n * c.d.R + r] * c.dy[t * c.d.N + n];
        }
      }
    }
    return sum;
  };
  const auto expect_slope = [&](std::vector<float>& values, const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = values[i];
      values[i] = value + 1;  // the loss is linear in each value
      const double up = loss();
      values[i] = value - 1;
      const double down = loss();
      values[i] = value;
      EXPECT_NEAR(gradient[i], (up - down) / 2, 1e-5) << "at " << i;
    }
  };
  expect_slope(c.a, c.da);
  expect_slope(c.b, c.db);
  expect_slope(c.x, c.dx);
}

TEST(Lora, DropsTheSameElementsWhereverARunOfTokensBegins) {
  const Dims d{.T = 40, .N = 3, .K = 70, .R = 4};
  Case<float> whole(d, 0.5F);
  lora_forward(whole.forward());
  Case<float> part({.T = 10, .N = 3, .K = 70, .R = 4}, 0.5F);
  part.x.assign(whole.x.begin() + 30 * 70, whole.x.end());
  part.a = whole.a;
  part.dropout.first_row += 30;
  lora_forward(part.forward());
  EXPECT_TRUE(std::equal(part.u.begin(), part.u.end(), whole.u.begin() + 30 * 4));
}

TEST(Lora, GivesTheSameBitsForAnyThreadCount) {
  const Dims d{.T = 530, .N = 300, .K = 290, .R = 8};
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    std::vector<Case<float>> cases(3, Case<float>(d, 0.1F));
    for (int i = 0; i < 3; ++i) {
      omp_set_num_threads(1 + 2 * i);
      lora_forward(cases[i].forward());
      lora_backward(cases[i].backward());
      lora_input_backward(cases[i].input_backward());
      EXPECT_EQ(cases[i].u, cases[0].u);
      EXPECT_EQ(cases[i].dx, cases[0].dx);
      EXPECT_EQ(cases[i].da, cases[0].da);
      EXPECT_EQ(cases[i].db, cases[0].db);
    }
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(Lora, NamesWhatDoesNotFit) {
  Case<float> c({.T = 2, .N = 3, .K = 4, .R = 2});
  const auto refused = [](const LoraForward& args) { return [args] { lora_forward(args); }; };
  auto args = c.forward();
  args.a.shape[1] = 5;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[lora] a f32 (2, 5) does not match x f32 (2, 4): expected f32 (2, 4)");
  args = c.forward();
  args.u.dtype = DType::kBf16;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[lora] u bf16 (2, 2) does not match x f32 (2, 4): expected f32 (2, 2)");
  args = c.forward();
  args.a.rank = 1;
  expect_error(refused(args), ErrorCode::kInvalidArgument, "[lora] a f32 (2) must be a matrix");
  args = c.forward();
  args.dropout.p = 1;
  expect_error(refused(args), ErrorCode::kInvalidArgument, "[lora] dropout 1 is not in [0, 1)");
  auto backward = c.backward();
  backward.db.shape[0] = 4;
  expect_error([&] { lora_backward(backward); },
               ErrorCode::kInvalidArgument,
               "[lora] db f32 (4, 2) does not match b f32 (3, 2): expected f32 (3, 2)");
  backward = c.backward();
  backward.b.shape[1] = 3;
  expect_error([&] { lora_backward(backward); },
               ErrorCode::kInvalidArgument,
               "[lora] b f32 (3, 3) does not match a f32 (2, 4): expected f32 (3, 2)");
  auto input = c.input_backward();
  input.du.shape[0] = 3;
  expect_error([&] { lora_input_backward(input); },
               ErrorCode::kInvalidArgument,
               "[lora] du f32 (3, 2) does not match dx f32 (2, 4): expected f32 (2, 2)");
}

}  // namespace
}  // namespace longtune::ops
