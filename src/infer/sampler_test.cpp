#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

// Probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};

/// How often each of four tokens is drawn over positions 0 .. 9,999.
std::array<int, 4> draw(const SamplerOptions& options, const std::vector<float>& logits = kLogits) {
  Sampler sampler(options);
  std::array<int, 4> counts{};
  for (std::int64_t position = 0; position < 10'000; ++position) {
    ++counts.at(sampler.sample(logits, position));
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndOfEqualsTheFirst) {
  Sampler sampler(SamplerOptions{});
  EXPECT_EQ(sampler.sample(kLogits, 0), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 2, 2, 1}, 5), 1);
}

TEST(Sampler, DrawsByProbability) {
  const std::array<int, 4> counts = draw({.temperature = 1});
  // Five standard deviations of a binomial count are at most 5 * sqrt(10^4 * 0.25) = 250.
  EXPECT_NEAR(counts[0], 1000, 250);
  EXPECT_NEAR(counts[1], 4000, 250);
  EXPECT_NEAR(counts[2], 2000, 250);
  EXPECT_NEAR(counts[3], 3000, 250);
}

TEST(Sampler, TemperatureSharpens) {
  // p^2 / sum: 0.01, 0.16, 0.04, 0.09 over 0.30.
  const std::array<int, 4> counts = draw({.temperature = 0.5});
  EXPECT_NEAR(counts[0], 333, 150);
  EXPECT_NEAR(counts[1], 5333, 250);
  EXPECT_NEAR(counts[3], 3000, 250);
}

TEST(Sampler, TopKKeepsTheLargestK) {
  const std::array<int, 4> counts = draw({.temperature = 1, .top_k = 2});
  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_NEAR(counts[1], 5714, 250);  // 0.4 / 0.7
  EXPECT_EQ(draw({.temperature = 1, .top_k = 1})[1], 10'000);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 9}), draw({.temperature = 1}));
}

TEST(Sampler, TopPKeepsTheFewestThatReachP) {
  EXPECT_EQ(draw({.temperature = 1, .top_p = 0.39})[1], 10'000);
  const std::array<int, 4> two = draw({.temperature = 1, .top_p = 0.6});
  EXPECT_EQ(two[0] + two[2], 0);
  EXPECT_GT(two[3], 0);
  const std::array<int, 4> three = draw({.temperature = 1, .top_p = 0.8});
  EXPECT_EQ(three[0], 0);
  EXPECT_GT(three[2], 0);
}

TEST(Sampler, TopPFollowsTopKOverWhatIsLeft) {
  // Of 0.4 and 0.3, 0.4 is 0.571 of the sum: enough for 0.55 only after normalising.
  const std::array<int, 4> counts = draw({.temperature = 1, .top_k = 2, .top_p = 0.55});
  EXPECT_EQ(counts[1], 10'000);
}

TEST(Sampler, SeedAndPositionAloneDecide) {
  Sampler a({.temperature = 1, .seed = 1});
  Sampler b({.temperature = 1, .seed = 1});
  Sampler c({.temperature = 1, .seed = 2});
  int different = 0;
  for (std::int64_t position = 99; position >= 0; --position) {
    EXPECT_EQ(a.sample(kLogits, position), b.sample(kLogits, position));
    different += b.sample(kLogits, position) != c.sample(kLogits, position) ? 1 : 0;
  }
  EXPECT_GT(different, 20);
}

TEST(Sampler, MaskedTokensAreNeverDrawn) {
  EXPECT_EQ(draw({.temperature = 10}, {-INFINITY, 0, -INFINITY, 0})[2], 0);
}

TEST(Sampler, RefusesBrokenLogitsAndOptions) {
  Sampler sampler(SamplerOptions{});
  const auto refuses = [&](const std::vector<float>& logits, std::string_view message) {
    expect_error([&] { (void)sampler.sample(logits, 0); }, ErrorCode::kBadInput, message);
  };
  refuses({0, NAN}, "gives token 1 a logit of nan");
  refuses({0, INFINITY}, "gives token 1 a logit of inf");
  refuses({-INFINITY, -INFINITY}, "none of 2 logits is finite");
  refuses({}, "none of 0 logits is finite");
  EXPECT_THROW(Sampler({.temperature = -1}), Error);
  EXPECT_THROW(Sampler({.temperature = NAN}), Error);
  EXPECT_THROW(Sampler({.top_k = -1}), Error);
  EXPECT_THROW(Sampler({.top_p = 0}), Error);
  EXPECT_THROW(Sampler({.top_p = 1.5}), Error);
}

}  // namespace
}  // namespace longtune
