#include "ops/head_loss.h"

#include <gtest/gtest.h>
#include <omp.h>

#include "ops/test_weights.h"
#include "support/expect_error.h"

namespace longtune::ops {
namespace {

template <class Float>
struct Case {
  std::int64_t T, V, C, tile;
  WeightView weight;
  std::vector<Float> x, dx;
  std::vector<float> losses, logits;
  std::vector<std::int32_t> targets;

  Case(std::int64_t tokens, std::int64_t tile_tokens, const WeightView& w)
      : T(tokens),
        V(w.N),
        C(w.K),
        tile(tile_tokens),
        weight(w),
        x(rounded_to<Float>(random_values(T * C, 1))),
        dx(static_cast<std::size_t>(T * C), Float(NAN)),
        losses(static_cast<std::size_t>(T), NAN),
        logits(static_cast<std::size_t>(tile * V), NAN) {
    for (std::int64_t t = 0; t < T; ++t) {
      const auto bound = static_cast<std::uint32_t>(V);
      targets.push_back(static_cast<std::int32_t>(random_below(8, t, bound)));
    }
  }

  HeadLoss args() {
    return {.losses = view(losses, {T}),
            .dx = view(dx, {T, C}),
            .logits = view(logits, {tile, V}),
            .x = view(std::as_const(x), {T, C}),
            .targets = view(std::as_const(targets), {T}),
            .weight = weight,
            .grad_scale = 0.25F};
  }
};

TEST(HeadLoss, MatchesNumbersWorkedByHand) {
  const std::vector<float> w = {0, 1, std::log(3.0F)};  // (3, 1)
  const WeightView weight =
      weight_view(WeightFormat::kF32, 3, 1, reinterpret_cast<const std::byte*>(w.data()));
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    Case<float> c(2, 1, weight);
    c.x = {0, 1};
    c.targets = {1, 2};
    head_loss(c.args());
    EXPECT_FLOAT_EQ(c.losses[0], std::log(3.0F));  // three equal logits
    const float total = 1 + std::exp(1.0F) + 3;
    EXPECT_FLOAT_EQ(c.losses[1], std::log(total / 3));
    EXPECT_NEAR(c.dx[0], 0.25F * ((w[1] + w[2]) / 3 - w[1]), 1e-7F);
    EXPECT_NEAR(c.dx[1], 0.25F * ((std::exp(1.0F) * w[1] + 3 * w[2]) / total - w[2]), 1e-7F);
  }
}

template <class Float>
void expect_agreement(WeightFormat format, std::int64_t V, std::int64_t C) {
  const TestWeight weight(format, V, C, 3);
  Case<Float> fast(7, 3, weight.view());
  Case<Float> truth(7, 3, weight.view());
  fast.targets[1] = truth.targets[1] = kNoTarget;
  head_loss(fast.args());
  const SeenWeight<Float> seen(weight.view());  // by the logits, not by dx
  Case<Float> rounded(7, 3, seen.view());
  rounded.targets = truth.targets;
  ref::head_loss(rounded.args());
  ref::head_loss(truth.args());
  const std::string what = fmt::format("{} {} V {}", name_of(selected_isa()), name_of(format), V);
  expect_near(fast.losses, rounded.losses, 3e-6F, what + " losses");
  expect_near(fast.dx, truth.dx, tolerance<Float>(3e-6F), what + " dx");
  EXPECT_EQ(fast.losses[1], 0);
  EXPECT_EQ(static_cast<float>(fast.dx[static_cast<std::size_t>(C)]), 0);
}

TEST(HeadLoss, AgreesWithTheReference) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const WeightFormat format : kAllFormats) {
      const std::int64_t C = block_values(format) == 1 ? 24 : block_values(format);
      expect_agreement<float>(format, 523, C);
      expect_agreement<BFloat16>(format, 13, C);
    }
  }
}

TEST(HeadLoss, StaysAccurateWithLargeLogits) {
  const TestWeight weight(WeightFormat::kF32, 300, 40, 3);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    Case<float> fast(4, 4, weight.view());
    for (float& x : fast.x) {
      x *= 100;
    }
    Case<float> truth = fast;
    head_loss(fast.args());
    ref::head_loss(truth.args());
    expect_near(fast.losses, truth.losses, 1e-6F, "losses");
    expect_near(fast.dx, truth.dx, 2e-4F, "dx");
  }
}

TEST(HeadLoss, DependsNeitherOnTheTileNorOnThreads) {
  const TestWeight weight(WeightFormat::kQ8_0, 301, 288, 3);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    omp_set_num_threads(1);
    Case<float> once(23, 23, weight.view());
    head_loss(once.args());
    for (const std::int64_t tile : {1, 4, 64}) {
      omp_set_num_threads(static_cast<int>(tile));
      Case<float> tiled(23, tile, weight.view());
      head_loss(tiled.args());
      EXPECT_EQ(tiled.losses, once.losses) << tile;
      EXPECT_EQ(tiled.dx, once.dx) << tile;
    }
  }
  omp_set_num_threads(omp_get_num_procs());
}

TEST(HeadLoss, GradientMatchesCentralDifferences) {
  const TestWeight weight(WeightFormat::kF32, 11, 5, 3);
  Case<float> c(3, 2, weight.view());
  head_loss(c.args());
  const std::vector<float> gradient = c.dx;
  const auto loss = [&c] {
    auto args = c.args();
    args.dx = {};
    ref::head_loss(args);
    return 0.25 * (static_cast<double>(c.losses[0]) + c.losses[1] + c.losses[2]);
  };
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    const float x = c.x[i];
    constexpr float kStep = 0x1p-6F;
    c.x[i] = x + kStep;
    const double up = loss();
    c.x[i] = x - kStep;
    const double down = loss();
    c.x[i] = x;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep), 2e-5) << "at " << i;
  }
}

TEST(HeadLoss, TheGradientIsOptionalAndWithoutTargetsNothingIsLost) {
  const TestWeight weight(WeightFormat::kF32, 11, 5, 3);
  Case<float> with(4, 2, weight.view());
  Case<float> without(4, 2, weight.view());
  for (auto* c : {&with, &without}) {
    c->targets = {kNoTarget, kNoTarget, 4, kNoTarget};
  }
  head_loss(with.args());
  auto args = without.args();
  args.dx = {};
  head_loss(args);
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.losses[0], 0);
  EXPECT_GT(with.losses[2], 0);
  EXPECT_TRUE(std::all_of(with.dx.begin(), with.dx.begin() + 10, [](float v) { return v == 0; }));
}

TEST(HeadLoss, ANanShowsInTheLoss) {
  const TestWeight weight(WeightFormat::kF32, 40, 5, 3);
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    Case<float> c(2, 2, weight.view());
    c.x[2] = NAN;
    head_loss(c.args());
    EXPECT_TRUE(std::isnan(c.losses[0]));
    EXPECT_TRUE(std::isfinite(c.losses[1]));
  }
}

TEST(HeadLoss, NamesWhatDoesNotFit) {
  const TestWeight weight(WeightFormat::kF32, 11, 5, 3);
  Case<float> c(3, 2, weight.view());
  const auto refused = [](const HeadLoss& args) { return [args] { head_loss(args); }; };
  auto args = c.args();
  args.x.shape[1] = 6;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[head_loss] weight f32 (11, 5) does not match the last dimension of x f32 (3, 6)");
  args = c.args();
  args.logits.shape[1] = 12;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[head_loss] logits f32 (2, 12) must be f32 (tile, 11) for the weight f32 (11, 5)");
  args = c.args();
  args.losses.shape[0] = 2;
  expect_error(refused(args),
               ErrorCode::kInvalidArgument,
               "[head_loss] losses f32 (2) does not match x f32 (3, 5): expected f32 (3)");
  c.targets[2] = 11;
  expect_error(refused(c.args()),
               ErrorCode::kInvalidArgument,
               "[head_loss] target 11 at position 2 is outside the vocabulary of 11");
  c.targets[2] = -1;
  expect_error(refused(c.args()),
               ErrorCode::kInvalidArgument,
               "[head_loss] target -1 at position 2 is outside the vocabulary of 11");
}

}  // namespace
}  // namespace longtune::ops
