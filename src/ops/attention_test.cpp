#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_pages.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

struct Shape {
  std::int64_t T = 1;
  std::int64_t first_position = 0;
  std::int64_t Hq = 1;
  std::int64_t Hkv = 1;
  std::int64_t D = 8;
  std::int64_t live_begin = 0;
  DType kv = DType::kF32;
};

std::string describe(const Shape& s) {
  return fmt::format("T {} from {}, {} heads over {} of {}, live from {}, kv {}",
                     s.T,
                     s.first_position,
                     s.Hq,
                     s.Hkv,
                     s.D,
                     s.live_begin,
                     name_of(s.kv));
}

// All tokens of a sequence up to first_position + T, of which the last T are the queries.
template <class Float>
struct Case {
  Shape shape;
  std::int64_t S;
  TestPages store;
  std::vector<float> k, v;
  std::vector<Float> q, dout, out, dq;
  std::vector<float> lse, delta, dk, dv, group_dk, group_dv, sums;

  explicit Case(const Shape& s, float spread = 1)
      : shape(s),
        S(s.first_position + s.T),
        store({.tokens = S, .Hkv = s.Hkv, .D = s.D, .dtype = s.kv}),
        k(random_values(S * s.Hkv * s.D, 1, spread)),
        v(random_values(S * s.Hkv * s.D, 2, spread)),
        q(rounded_to<Float>(random_values(s.T * s.Hq * s.D, 3, spread))),
        dout(rounded_to<Float>(random_values(s.T * s.Hq * s.D, 4))),
        out(q.size()),
        dq(q.size()),
        lse(static_cast<std::size_t>(s.Hq * s.T)),
        delta(lse.size()),
        dk(static_cast<std::size_t>((S - s.live_begin) * s.Hkv * s.D)),
        dv(dk.size()),
        group_dk(dk.size()),
        group_dv(dk.size()),
        sums(static_cast<std::size_t>(s.Hkv * S)) {
    append();
  }

  void append() {
    const std::int64_t Hkv = shape.Hkv;
    kv_append({.kv = store.pages(),
               .k = view(std::as_const(k), {S, Hkv, shape.D}),
               .v = view(std::as_const(v), {S, Hkv, shape.D})});
  }

  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.D)); }

  AttentionForward forward() {
    const auto& [T, first_position, Hq, Hkv, D, live_begin, kv] = shape;
    return {.out = view(out, {T, Hq, D}),
            .lse = view(lse, {T, Hq}),
            .q = view(std::as_const(q), {T, Hq, D}),
            .kv = store.pages(),
            .first_position = first_position,
            .scale = scale()};
  }

  AttentionBackward backward() {
    const auto& [T, first_position, Hq, Hkv, D, live_begin, kv] = shape;
    return {.dq = view(dq, {T, Hq, D}),
            .dk = view(dk, {S - live_begin, Hkv, D}),
            .dv = view(dv, {S - live_begin, Hkv, D}),
            .delta = view(delta, {T, Hq}),
            .group_dk = view(group_dk, {S - live_begin, Hkv, D}),
            .group_dv = view(group_dv, {S - live_begin, Hkv, D}),
            .dout = view(std::as_const(dout), {T, Hq, D}),
            .out = view(std::as_const(out), {T, Hq, D}),
            .lse = view(std::as_const(lse), {T, Hq}),
            .q = view(std::as_const(q), {T, Hq, D}),
            .kv = store.pages(),
            .first_position = first_position,
            .live_begin = live_begin,
            .scale = scale()};
  }

  AttentionColumnSums column_sums(std::int64_t first_row, std::int64_t end_row) {
    const auto& [T, first_position, Hq, Hkv, D, live_begin, kv] = shape;
    return {.sums = view(sums, {Hkv, S}),
            .q = view(std::as_const(q), {T, Hq, D}),
            .lse = view(std::as_const(lse), {T, Hq}),
            .kv = store.pages(),
            .first_position = first_position,
            .scale = scale(),
            .first_row = first_row,
            .end_row = end_row};
  }
};

// One of everything that has gone wrong in such kernels: ragged head dimensions, one query after a
// long history, a segment that begins inside a page, groups of 1, 3 and 4, detached history.
std::vector<Shape> shapes() {
  constexpr DType kB = DType::kBf16;
  return {{.T = 1, .Hq = 1, .Hkv = 1, .D = 8},
          {.T = 1, .first_position = 300, .Hq = 3, .Hkv = 1, .D = 64},
          {.T = 1, .first_position = 63, .Hq = 4, .Hkv = 4, .D = 16, .kv = kB},
          {.T = 5, .first_position = 62, .Hq = 8, .Hkv = 2, .D = 24},
          {.T = 67, .Hq = 3, .Hkv = 1, .D = 80, .kv = kB},
          {.T = 70, .first_position = 100, .Hq = 6, .Hkv = 2, .D = 10, .live_begin = 64},
          {.T = 64, .first_position = 128, .Hq = 4, .Hkv = 1, .D = 64, .live_begin = 128},
          {.T = 130, .first_position = 64, .Hq = 2, .Hkv = 2, .D = 128, .kv = kB},
          {.T = 5, .first_position = 62, .Hq = 8, .Hkv = 2, .D = 48, .kv = kB},
          {.T = 83, .first_position = 140, .Hq = 3, .Hkv = 1, .D = 32, .live_begin = 128, .kv = kB},
          {.T = 200, .first_position = 71, .Hq = 9, .Hkv = 3, .D = 2, .live_begin = 64}};
}

template <class Float>
class Attention : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Attention, Floats);

TEST(AttentionNumbers, MatchNumbersWorkedByHand) {
  // Two tokens; the second sees scores 0 and ln 3, so it weighs the values 1/4 and 3/4.
  Case<float> c({.T = 2, .D = 2});
  c.k = {0, 0, 1, 0};
  c.v = {1, 2, 5, 10};
  c.q = {7, 7, std::log(3.0F), 9};
  c.append();
  auto args = c.forward();
  args.scale = 1;
  attention_forward(args);
  expect_near(c.out, {1, 2, 4, 8}, 1e-6F, "out");
  expect_near(c.lse, {0, std::log(4.0F)}, 1e-6F, "lse");
}

TYPED_TEST(Attention, AgreesWithTheReference) {
  for (const Shape& shape : shapes()) {
    Case<TypeParam> truth(shape);
    ref::attention_forward(truth.forward());
    ref::attention_backward(truth.backward());
    with_each_isa([&] {
      Case<TypeParam> fast(shape);
      attention_forward(fast.forward());
      expect_near(fast.out, truth.out, tolerance<TypeParam>(2e-6F), "out of " + describe(shape));
      expect_near(fast.lse, truth.lse, 2e-6F, "lse of " + describe(shape));
      const std::vector<TypeParam> out = std::exchange(fast.out, truth.out);
      attention_backward(fast.backward());
      expect_near(fast.dq, truth.dq, tolerance<TypeParam>(1e-5F), "dq of " + describe(shape));
      const float bound = attention_tolerance<TypeParam>(shape.kv, shape.D, 2e-5F);
      expect_near(fast.dk, truth.dk, bound, "dk of " + describe(shape));
      expect_near(fast.dv, truth.dv, bound, "dv of " + describe(shape));
      expect_near_together(
          out, truth.out, tolerance<TypeParam>(1e-5F), "out of " + describe(shape));
      expect_near_together(
          fast.dq, truth.dq, tolerance<TypeParam>(1e-4F), "dq of " + describe(shape));
      expect_near_together(fast.dk, truth.dk, std::max(bound, 1e-4F), "dk of " + describe(shape));
      expect_near_together(fast.dv, truth.dv, std::max(bound, 1e-4F), "dv of " + describe(shape));
    });
  }
}

TEST(AttentionNumbers, StayFiniteWhereScoresAreLarge) {
  const Shape shape{.T = 40, .first_position = 50, .Hq = 2, .Hkv = 1, .D = 16};
  Case<float> fast(shape, 30);
  Case<float> truth(shape, 30);
  attention_forward(fast.forward());
  ref::attention_forward(truth.forward());
  expect_near(fast.lse, truth.lse, 1e-6F, "lse");
  expect_near(fast.out, truth.out, 2e-3F, "out");  // scores near 2000 are known to 1e-4
}

TEST(AttentionNumbers, ShowWhatIsNotFinite) {
  Case<float> c({.T = 3, .first_position = 70, .Hq = 1, .Hkv = 1, .D = 8});
  c.q[8] = NAN;
  attention_forward(c.forward());
  EXPECT_FALSE(std::isnan(c.out[0]));
  EXPECT_TRUE(std::isnan(c.out[8]));
  EXPECT_TRUE(std::isnan(c.lse[1]));
  EXPECT_FALSE(std::isnan(c.out[16]));
}

TYPED_TEST(Attention, ARowHasTheSameBitsHoweverManyAreComputedWithIt) {
  for (const DType kv : {DType::kF32, DType::kBf16}) {
    const std::int64_t D = kv == DType::kBf16 ? 48 : 24;
    const Shape shape{.T = 150, .first_position = 37, .Hq = 6, .Hkv = 2, .D = D, .kv = kv};
    Case<TypeParam> whole(shape);
    attention_forward(whole.forward());
    Case<TypeParam> parts(shape);
    std::int64_t begin = 0;
    for (const std::int64_t count : {1, 2, 61, 1, 20, 64, 1}) {
      auto args = parts.forward();
      std::vector<float> lse(static_cast<std::size_t>(shape.Hq * count));
      args.q = args.q.rows(begin, count);
      args.out = args.out.rows(begin, count);
      args.lse = view(lse, {count, shape.Hq});
      args.first_position += begin;
      attention_forward(args);
      EXPECT_TRUE(std::equal(lse.begin(), lse.end(), whole.lse.begin() + begin * shape.Hq));
      begin += count;
    }
    ASSERT_EQ(begin, shape.T);
    EXPECT_EQ(widened(parts.out), widened(whole.out));
  }
}

TYPED_TEST(Attention, GivesTheSameBitsForAnyThreadCount) {
  const Shape shape{.T = 300,
                    .first_position = 90,
                    .Hq = 3,
                    .Hkv = 1,
                    .D = 16,
                    .live_begin = 64,
                    .kv = DType::kBf16};
  Case<TypeParam> one(shape);
  use_threads(1);
  attention_forward(one.forward());
  attention_backward(one.backward());
  for (const int threads : {2, 3, 5}) {
    Case<TypeParam> many(shape);
    use_threads(threads);
    attention_forward(many.forward());
    attention_backward(many.backward());
    EXPECT_EQ(widened(many.out), widened(one.out)) << threads;
    EXPECT_EQ(many.lse, one.lse) << threads;
    EXPECT_EQ(widened(many.dq), widened(one.dq)) << threads;
    EXPECT_EQ(many.dk, one.dk) << threads;
    EXPECT_EQ(many.dv, one.dv) << threads;
  }
}

TYPED_TEST(Attention, ColumnSumsAgreeWithTheReference) {
  for (const Shape& shape : shapes()) {
    for (const auto& [first, end] : {std::pair{std::int64_t{0}, shape.T},
                                     std::pair{shape.T / 2, shape.T},
                                     std::pair{shape.T / 3, shape.T / 2 + 1}}) {
      Case<TypeParam> truth(shape);
      attention_forward(truth.forward());
      ref::attention_column_sums(truth.column_sums(first, end));
      double total = 0;
      for (const float sum : truth.sums) {
        total += sum;
      }
      EXPECT_NEAR(total, static_cast<double>((end - first) * shape.Hkv), 1e-3 * total);
      with_each_isa([&] {
        Case<TypeParam> fast(shape);
        fast.lse = truth.lse;
        attention_column_sums(fast.column_sums(first, end));
        expect_near(fast.sums, truth.sums, 2e-6F, "sums of " + describe(shape));
      });
    }
  }
}

TEST(AttentionNumbers, ColumnSumsReadOtherChunksAsTheyClosed) {
  const Shape shape{.T = 100, .first_position = 70, .Hq = 4, .Hkv = 2, .D = 16};
  Case<float> fast(shape);
  Case<float> truth(shape);
  Case<float> other(shape);
  other.k = random_values(static_cast<std::int64_t>(other.k.size()), 11);
  other.append();
  const auto closed = [&](auto args) {
    args.kv.closed = other.store.pages().pages;
    return args;
  };
  ref::attention_forward(closed(truth.forward()));
  fast.lse = truth.lse;
  ref::attention_column_sums(closed(truth.column_sums(5, 90)));
  attention_column_sums(closed(fast.column_sums(5, 90)));
  expect_near(fast.sums, truth.sums, 2e-6F, "sums");
  attention_column_sums(fast.column_sums(5, 90));
  EXPECT_NE(fast.sums, truth.sums);
}

TYPED_TEST(Attention, ColumnSumsHaveTheSameBitsForAnyThreadCount) {
  const Shape shape{.T = 300, .first_position = 90, .Hq = 6, .Hkv = 2, .D = 16};
  Case<TypeParam> one(shape);
  attention_forward(one.forward());
  use_threads(1);
  attention_column_sums(one.column_sums(5, 290));
  for (const int threads : {2, 3, 8}) {
    use_threads(threads);
    Case<TypeParam> many(shape);
    many.lse = one.lse;
    attention_column_sums(many.column_sums(5, 290));
    EXPECT_EQ(many.sums, one.sums) << threads;
  }
  use_threads(available_cores());
}

// The loss that has `dout` as its gradient, from the reference's forward pass.
double loss_of(Case<float>& c) {
  c.append();
  ref::attention_forward(c.forward());
  double sum = 0;
  for (std::size_t i = 0; i < c.out.size(); ++i) {
    sum += static_cast<double>(c.out[i]) * c.dout[i];
  }
  return sum;
}

double central_difference(Case<float>& c, float& input) {
  const float value = input;
  constexpr float kStep = 1e-2F;
  input = value + kStep;
  const double up = loss_of(c);
  input = value - kStep;
  const double down = loss_of(c);
  input = value;
  return (up - down) / (2 * kStep);
}

TEST(AttentionGradient, MatchesCentralDifferences) {
  Case<float> c({.T = 4, .first_position = 64, .Hq = 2, .Hkv = 1, .D = 4, .live_begin = 64});
  attention_forward(c.forward());
  attention_backward(c.backward());
  for (std::size_t i = 0; i < c.q.size(); ++i) {
    EXPECT_NEAR(c.dq[i], central_difference(c, c.q[i]), 1e-4) << "dq at " << i;
  }
  for (std::size_t i = 0; i < c.dk.size(); ++i) {
    const std::size_t token = static_cast<std::size_t>(c.shape.live_begin) * 4 + i;
    EXPECT_NEAR(c.dk[i], central_difference(c, c.k[token]), 1e-4) << "dk at " << i;
    EXPECT_NEAR(c.dv[i], central_difference(c, c.v[token]), 1e-4) << "dv at " << i;
  }
}

TEST(AttentionErrors, NameWhatDoesNotFit) {
  Case<float> c({.T = 2, .first_position = 5, .Hq = 4, .Hkv = 2, .D = 8});
  const auto forward_error = [&c](auto change) {
    auto args = c.forward();
    change(args);
    return error_of(ErrorCode::kInvalidArgument, [&] { attention_forward(args); });
  };
  EXPECT_EQ(forward_error([](auto& a) {
              a.lse.shape = {2, 2};
            }),
            "[attention_forward] lse f32 (2, 2) does not match q f32 (2, 4, 8): expected f32 (2, "
            "4)");
  EXPECT_EQ(forward_error([](auto& a) { a.out.dtype = DType::kBf16; }),
            "[attention_forward] out bf16 (2, 4, 8) does not match q f32 (2, 4, 8): expected f32 "
            "(2, 4, 8)");
  EXPECT_EQ(forward_error([](auto& a) { a.kv.tokens = 6; }),
            "[attention_forward] queries at positions [5, 7) need as many tokens in the pages, "
            "which hold 6");
  EXPECT_EQ(forward_error([](auto& a) { a.kv.Hkv = 3; }),
            "[attention_forward] the heads of q f32 (2, 4, 8) do not fall into groups over 3 KV "
            "heads");
  EXPECT_EQ(forward_error([](auto& a) { a.kv.D = 16; }),
            "[attention_forward] the last dimension of q f32 (2, 4, 8) is not that of the pages, "
            "16");
  EXPECT_EQ(forward_error([](auto& a) { a.scale = 0; }),
            "[attention_forward] a scale of 0: it must be finite and above 0");
  EXPECT_EQ(forward_error([](auto& a) { a.scale = -0.5F; }),
            "[attention_forward] a scale of -0.5: it must be finite and above 0");
  EXPECT_EQ(forward_error([](auto& a) { a.scale = INFINITY; }),
            "[attention_forward] a scale of inf: it must be finite and above 0");
  auto args = c.backward();
  args.scale = NAN;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { attention_backward(args); }),
            "[attention_backward] a scale of nan: it must be finite and above 0");
  auto sums = c.column_sums(0, 1);
  sums.scale = 0;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { attention_column_sums(sums); }),
            "[attention_column_sums] a scale of 0: it must be finite and above 0");
  args = c.backward();
  args.live_begin = 64;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { attention_backward(args); }),
            "[attention_backward] live tokens begin at 64, which is not a multiple of 64 up to the "
            "first position, 5");
  args = c.backward();
  args.dk.shape[0] = 6;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { attention_backward(args); }),
            "[attention_backward] dk f32 (6, 2, 8) does not match q f32 (2, 4, 8): expected f32 "
            "(7, 2, 8)");
}

TEST(AttentionErrors, NameRowsThatColumnSumsCannotCount) {
  Case<float> c({.T = 2, .first_position = 5, .Hq = 4, .Hkv = 2, .D = 8});
  EXPECT_EQ(
      error_of(ErrorCode::kInvalidArgument, [&] { attention_column_sums(c.column_sums(1, 3)); }),
      "[attention_column_sums] rows [1, 3) are not among the 2 queries");
}

TEST(AttentionErrors, NameHeadDimensionsWithoutAKernel) {
  Case<float> c({.T = 1, .D = 7});
  EXPECT_EQ(error_of(ErrorCode::kUnsupported, [&] { attention_forward(c.forward()); }),
            "[attention_forward] no kernel for the head dimension of q f32 (1, 1, 7): it must be "
            "even and at most 256");
}

}  // namespace
}  // namespace longtune::ops
