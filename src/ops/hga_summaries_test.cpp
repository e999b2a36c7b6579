#include "ops/hga_summaries.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "ops/rope.h"
#include "ops/test_pages.h"
#include "ops/test_values.h"
#include "support/expect_error.h"

namespace longtune::ops {
namespace {

constexpr std::int64_t kTokens = 200;  // three closed chunks and a part

// Those of a model, divided by `factor` as linear RoPE scaling does.
std::vector<float> frequencies_of(std::int64_t D, double factor) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < D / 2; ++i) {
    result.push_back(static_cast<float>(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(D)) / factor));
  }
  return result;
}

// Whether a pair turns fast, by definition.
bool is_fast(double frequency, double turns = 63) {
  return turns * frequency > 0.5;
}

// Unrotated keys (T, Hkv, D), their pages after rotation, and the summaries.
struct Case {
  std::int64_t Hkv, D;
  HgaSummary summary;
  std::int64_t S;
  double fast_from = 63;  // tokens from a chunk's first to its last
  std::vector<float> frequencies, raw, rotated;
  TestPages pages;
  std::vector<float> turns, chunks, groups;
  std::vector<BFloat16> narrow_chunks, narrow_groups;

  Case(std::int64_t heads, std::int64_t width, DType dtype, HgaSummary kind, double factor = 1)
      : Hkv(heads),
        D(width),
        summary(kind),
        S(summary_width(kind, width)),
        frequencies(frequencies_of(width, factor)),
        raw(random_values(kTokens * heads * width, 5)),
        rotated(raw),
        pages({.tokens = kTokens, .Hkv = heads, .D = width, .dtype = dtype}),
        turns(hga_turns(frequencies, summary)),
        chunks(static_cast<std::size_t>(heads * 3 * S), NAN),
        groups(4 * chunks.size(), NAN),
        narrow_chunks(chunks.size()),
        narrow_groups(groups.size()) {
    std::vector<float> cos(static_cast<std::size_t>(kTokens * D / 2));
    std::vector<float> sin = cos;
    rope_table({.cos = view(cos, {kTokens, D / 2}),
                .sin = view(sin, {kTokens, D / 2}),
                .frequencies = view(std::as_const(frequencies), {D / 2})});
    rope_apply({.x = view(rotated, {kTokens, Hkv, D}),
                .cos = view(std::as_const(cos), {kTokens, D / 2}),
                .sin = view(std::as_const(sin), {kTokens, D / 2})});
    const ConstTensorView keys = view(std::as_const(rotated), {kTokens, Hkv, D});
    kv_append({.kv = pages.pages(), .k = keys, .v = keys});
  }

  HgaSummaries args() {
    const bool wide = pages.pages().dtype == DType::kF32;
    return {.summary = summary,
            .chunks = wide ? view(chunks, {Hkv, 3, S}) : view(narrow_chunks, {Hkv, 3, S}),
            .groups = wide ? view(groups, {Hkv, 12, S}) : view(narrow_groups, {Hkv, 12, S}),
            .kv = pages.pages(),
            .turns = view(std::as_const(turns), {2, 64, D / 2}),
            .group_tokens = 16,
            .first_chunk = 0,
            .end_chunk = 3};
  }
};

// As the definition says it: slow pairs are averaged before the rotation, and then rotated to the
// middle of the run.
double by_definition(
    const Case& c, std::int64_t head, std::int64_t p, std::int64_t n, std::int64_t d) {
  const std::int64_t half = c.D / 2;
  const std::int64_t pair = d % half;
  const double frequency = c.frequencies[static_cast<std::size_t>(pair)];
  double tokenwise = 0;
  double low = 0;
  double high = 0;
  for (std::int64_t j = p; j < p + n; ++j) {
    const auto row = static_cast<std::size_t>((j * c.Hkv + head) * c.D);
    tokenwise += c.rotated[row + static_cast<std::size_t>(d)];
    low += c.raw[row + static_cast<std::size_t>(pair)];
    high += c.raw[row + static_cast<std::size_t>(pair + half)];
  }
  const auto count = static_cast<double>(n);
  if (is_fast(frequency, c.fast_from)) {
    return tokenwise / count;
  }
  const double angle = static_cast<double>(p + (n - 1) / 2) * frequency;
  return (d < half ? low * std::cos(angle) - high * std::sin(angle)
                   : high * std::cos(angle) + low * std::sin(angle)) /
         count;
}

TEST(HgaSummaries, AreWhatTheDefinitionSays) {
  Case c(2, 24, DType::kF32, HgaSummary::kMixed);
  hga_summaries(c.args());
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t d = 0; d < 24; ++d) {
      EXPECT_NEAR(c.chunks[(head * 3 + 2) * 24 + d], by_definition(c, head, 128, 64, d), 1e-5);
      EXPECT_NEAR(c.groups[(head * 12 + 5) * 24 + d], by_definition(c, head, 80, 16, d), 1e-5);
    }
  }
}

// Stretched eight times, pairs that turned fast are slow, and are summarised as slow ones; those
// that stay fast are not turned.
TEST(HgaSummaries, GoByTheFrequenciesAfterRopeScaling) {
  constexpr std::int64_t kHalf = 12;
  Case c(2, 2 * kHalf, DType::kF32, HgaSummary::kMixed, 8);
  hga_summaries(c.args());
  std::int64_t became_slow = 0;
  std::int64_t stayed_fast = 0;
  for (std::int64_t pair = 0; pair < kHalf; ++pair) {
    const double frequency = c.frequencies[static_cast<std::size_t>(pair)];
    const bool was_fast = is_fast(8 * frequency);
    became_slow += was_fast && !is_fast(frequency) ? 1 : 0;
    stayed_fast += is_fast(frequency) ? 1 : 0;
    const float sine =
        c.turns[static_cast<std::size_t>(64 * kHalf + pair)];  // of 32 positions back
    EXPECT_EQ(sine != 0, !is_fast(frequency)) << pair;
    for (const std::int64_t d : {pair, pair + kHalf}) {
      EXPECT_NEAR(c.chunks[(3 + 2) * 24 + d], by_definition(c, 1, 128, 64, d), 1e-5) << d;
      EXPECT_NEAR(c.groups[5 * 24 + d], by_definition(c, 0, 80, 16, d), 1e-5) << d;
    }
  }
  EXPECT_GE(became_slow, 2);
  EXPECT_GE(stayed_fast, 2);
}

// Of two pages, for which a pair is fast from half the frequency on.
TEST(HgaSummaries, OfChunksOf128AreWhatTheDefinitionSays) {
  constexpr std::int64_t kD = 24;
  for (const bool reference : {false, true}) {
    Case c(2, kD, DType::kF32, HgaSummary::kMixed);
    c.fast_from = 127;
    c.turns = hga_turns(c.frequencies, HgaSummary::kMixed, 128);
    auto args = c.args();
    args.chunk_tokens = 128;
    args.turns = view(std::as_const(c.turns), {2, 128, kD / 2});
    args.chunks = view(c.chunks, {2, 1, kD});
    args.groups = view(c.groups, {2, 8, kD});
    args.end_chunk = 1;
    reference ? ref::hga_summaries(args) : hga_summaries(args);
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t d = 0; d < kD; ++d) {
        EXPECT_NEAR(c.chunks[head * kD + d], by_definition(c, head, 0, 128, d), 1e-5);
        EXPECT_NEAR(c.groups[(head * 8 + 5) * kD + d], by_definition(c, head, 80, 16, d), 1e-5);
      }
    }
  }
}

TEST(HgaSummaries, OfMeansAreMeans) {
  Case c(1, 8, DType::kF32, HgaSummary::kMean);
  hga_summaries(c.args());
  double sum = 0;
  for (std::int64_t t = 64; t < 128; ++t) {
    sum += c.rotated[static_cast<std::size_t>(t * 8 + 3)];
  }
  EXPECT_NEAR(c.chunks[8 + 3], sum / 64, 1e-6);
}

TEST(HgaSummaries, OfBoundsAreTheLargestAndTheSmallest) {
  Case c(2, 8, DType::kF32, HgaSummary::kMinMax);
  hga_summaries(c.args());
  float largest = -INFINITY;
  float smallest = INFINITY;
  for (std::int64_t t = 80; t < 96; ++t) {
    const float value = c.rotated[static_cast<std::size_t>((t * 2 + 1) * 8 + 3)];
    largest = std::max(largest, value);
    smallest = std::min(smallest, value);
  }
  EXPECT_EQ(c.groups[(12 + 5) * 16 + 3], largest);
  EXPECT_EQ(c.groups[(12 + 5) * 16 + 8 + 3], smallest);
}

TEST(HgaSummaries, AgreeWithTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const HgaSummary summary : {HgaSummary::kMixed, HgaSummary::kMean, HgaSummary::kMinMax}) {
      Case fast(3, 20, dtype, summary);
      Case truth(3, 20, dtype, summary);
      hga_summaries(fast.args());
      ref::hga_summaries(truth.args());
      if (dtype == DType::kF32) {
        expect_near(fast.chunks, truth.chunks, 1e-6F, "chunks");
        expect_near(fast.groups, truth.groups, 1e-6F, "groups");
      } else {
        expect_near(fast.narrow_chunks, truth.narrow_chunks, tolerance<BFloat16>(1e-5F), "chunks");
        expect_near(fast.narrow_groups, truth.narrow_groups, tolerance<BFloat16>(1e-5F), "groups");
      }
    }
  }
}

TEST(HgaSummaries, AreOfKeysAsTheyClosed) {
  Case both(2, 8, DType::kBf16, HgaSummary::kMixed);
  Case one(2, 8, DType::kBf16, HgaSummary::kMixed);
  TestPages appended({.tokens = kTokens, .Hkv = 2, .D = 8, .dtype = DType::kBf16});  // of NaN
  for (const auto run : {ref::hga_summaries, hga_summaries}) {
    HgaSummaries args = both.args();
    args.kv.closed = args.kv.pages;
    const KvPages nan = appended.pages();
    args.kv.pages = nan.pages;
    run(args);
    run(one.args());
    EXPECT_EQ(widened(both.narrow_chunks), widened(one.narrow_chunks));
    EXPECT_EQ(widened(both.narrow_groups), widened(one.narrow_groups));
  }
}

TEST(HgaSummaries, OfSomeChunksLeaveTheOthersAlone) {
  Case all(2, 16, DType::kF32, HgaSummary::kMixed);
  hga_summaries(all.args());
  Case some(2, 16, DType::kF32, HgaSummary::kMixed);
  auto args = some.args();
  args.first_chunk = 1;
  args.end_chunk = 2;
  hga_summaries(args);
  EXPECT_TRUE(std::isnan(some.chunks[0]));
  EXPECT_TRUE(std::isnan(some.groups[8 * 16]));
  EXPECT_EQ(some.chunks[16], all.chunks[16]);
  EXPECT_EQ(some.groups[(12 + 7) * 16], all.groups[(12 + 7) * 16]);
}

TEST(HgaSummaries, NameWhatDoesNotFit) {
  Case c(1, 8, DType::kF32, HgaSummary::kMixed);
  auto args = c.args();
  args.end_chunk = 4;
  expect_error([&] { hga_summaries(args); },
               ErrorCode::kInvalidArgument,
               "[hga_summaries] chunks [0, 4) are not among the 3 closed ones");
  args = c.args();
  args.group_tokens = 12;
  expect_error([&] { hga_summaries(args); },
               ErrorCode::kInvalidArgument,
               "[hga_summaries] groups of 12 tokens are not of 8, 16, 32 or 64");
}

}  // namespace
}  // namespace longtune::ops
