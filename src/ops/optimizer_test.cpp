#include "ops/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

struct Case {
  std::vector<float> param, grad, m, v;

  explicit Case(std::int64_t n)
      : param(random_values(n, 1)), grad(random_values(n, 2)), m(param.size()), v(param.size()) {}

  AdamW args() {
    const auto n = static_cast<std::int64_t>(param.size());
    return {.param = view(param, {n}),
            .m = view(m, {n}),
            .v = view(v, {n}),
            .grad = view(std::as_const(grad), {n}),
            .lr = 0.01,
            .weight_decay = 0.1};
  }
};

TEST(AdamW, FollowsThreeStepsOfTorch) {
  // torch 2.13, torch.optim.AdamW(lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1).
  Case c(4);
  c.param = {0.5F, -1.25F, 2.0F, 0.0F};
  const std::vector<std::vector<float>> gradients{
      {0.1F, -0.2F, 1e-3F, 0}, {-0.3F, 0.25F, 2e-3F, 1e-6F}, {0.05F, 4.0F, -1e-3F, 3.0F}};
  const std::vector<std::vector<float>> expected{
      {0.489500016F, -1.23874998F, 1.98800015F, 0},
      {0.493952423F, -1.2391386F, 1.97636044F, -0.00733762374F},
      {0.496233463F, -1.24436748F, 1.97018325F, -0.0137184244F}};
  for (std::size_t step = 0; step < 3; ++step) {
    c.grad = gradients[step];
    auto args = c.args();
    args.step = static_cast<std::int64_t>(step) + 1;
    adamw(args);
    expect_near(c.param, expected[step], 1e-7F, "param");
  }
  expect_near(c.m, {-0.0138999997F, 0.406300008F, 0.000160999989F, 0.300000101F}, 1e-7F, "m");
  const std::vector<float> v{0.000102390019F, 0.0161023587F, 5.99400174e-09F, 0.00900000054F};
  for (std::size_t i = 0; i < v.size(); ++i) {
    EXPECT_NEAR(c.v[i] / v[i], 1, 1e-6) << i;
  }
}

TEST(AdamW, AgreesWithTheReferenceOnRaggedSizesForAnyThreadCount) {
  for (const std::int64_t n : {1, 7, 16, 1001}) {
    Case fast(n);
    Case threaded(n);
    Case truth(n);
    for (std::int64_t step = 1; step <= 3; ++step) {
      for (Case* c : {&fast, &threaded, &truth}) {
        auto args = c->args();
        args.step = step;
        args.grad_scale = 0.5F;
        if (c == &truth) {
          ref::adamw(args);
        } else {
          use_threads(c == &fast ? 1 : 4);
          adamw(args);
        }
      }
    }
    expect_near(fast.param, truth.param, 1e-6F, "param");
    expect_near(fast.m, truth.m, 1e-6F, "m");
    expect_near(fast.v, truth.v, 1e-6F, "v");
    EXPECT_EQ(fast.param, threaded.param);
  }
}

TEST(SumOfSquares, IsTheSameForAnyThreadCount) {
  for (const std::int64_t n : {0, 1, 63, 64, 65, 100'003}) {
    const std::vector<float> x = random_values(n, 3);
    use_threads(1);
    const double one = sum_of_squares(view(x, {n}));
    use_threads(4);
    EXPECT_EQ(sum_of_squares(view(x, {n})), one);
    EXPECT_NEAR(one, ref::sum_of_squares(view(x, {n})), 1e-12 * (1 + one));
  }
}

TEST(SumOfSquares, IsExactWhereFloatsWouldNotBeAndShowsWhatIsNotFinite) {
  std::vector<float> x(1000, 0.0F);
  x[0] = 1e15F;
  x[999] = 3.0F;
  EXPECT_EQ(sum_of_squares(view(x, {1000})), double{1e15F} * double{1e15F} + 9.0);
  x[500] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(view(x, {1000}))));
  x[500] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(view(x, {1000}))));
}

TEST(OptimizerErrors, NameBothShapes) {
  Case c(4);
  auto args = c.args();
  args.v.shape = {5};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { adamw(args); }),
            "[adamw] v f32 (5) does not match param f32 (4): expected the same shape in f32");
  args = c.args();
  args.step = 0;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { adamw(args); }),
            "[adamw] step 0 is below 1, the first");
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       std::vector<BFloat16> x(3);
                       (void)sum_of_squares(view(x, {3}));
                     }),
            "[sum_of_squares] x bf16 (3) is not f32");
}

}  // namespace
}  // namespace longtune::ops
