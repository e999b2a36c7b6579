#include "ops/cpu/top_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/random.h"

namespace longtune::ops::cpu {
namespace {

std::vector<std::int32_t> by_sorting(const std::vector<float>& scores, std::size_t k) {
  std::vector<std::int32_t> indices(scores.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::ranges::stable_sort(indices, std::ranges::greater(), [&](std::int32_t i) {
    return scores[static_cast<std::size_t>(i)];
  });
  indices.resize(std::min(k, indices.size()));
  std::ranges::sort(indices);
  return indices;
}

TEST(TopScores, AreThoseOfAStableSort) {
  TopScores top;
  std::vector<std::int32_t> found;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<float> scores(random_below(seed, 0, 200));
    const bool ties = seed % 2 == 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const auto value = static_cast<float>(2 * random_uniform(seed, i + 1) - 1);
      scores[i] = ties ? static_cast<float>(static_cast<int>(value * 3)) : value * 1e30F;
    }
    for (const std::size_t k : {1U, 2U, 32U, 199U}) {
      top.find(scores, static_cast<std::int64_t>(k), found);
      EXPECT_EQ(found, by_sorting(scores, k)) << "seed " << seed << ", k " << k;
    }
  }
}

TEST(TopScores, TakeZerosOfBothSignsAsEqualAndInfinityLast) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  TopScores top;
  std::vector<std::int32_t> found;
  const std::vector<float> scores = {kNone, -0.0F, 0.0F, -1, kNone};
  top.find(scores, 1, found);
  EXPECT_EQ(found, (std::vector<std::int32_t>{1}));
  top.find(scores, 4, found);
  EXPECT_EQ(found, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace longtune::ops::cpu
