#include "ops/cpu/dropout.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/test_weights.h"

namespace longtune::ops::cpu {
namespace {

TEST(Dropout, DropsWhereTheGeneratorSaysOnEveryInstructionSet) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const float p : {0.1F, 0.5F, 0.9F, 1e-30F, 0.999999F}) {
      const Dropout dropout{.p = p, .key = 0xFEDCBA9876543210ULL, .first_row = 1'000'000'007};
      for (const std::int64_t count : {1, 3, 4, 100, 257}) {
        std::vector<float> factors(static_cast<std::size_t>(count) + 1, -1.0F);
        dropout_factors(dropout, 3, 1000, 17, count, factors.data());
        for (std::int64_t i = 0; i < count; ++i) {
          const auto counter = static_cast<std::uint64_t>(1'000'000'010LL * 1000 + 17 + i);
          const bool dropped =
              random_uniform(dropout.key, counter) < static_cast<double>(dropout.p);
          ASSERT_EQ(factors[i], dropped ? 0.0F : 1.0F / (1.0F - p)) << name_of(isa) << " at " << i;
        }
        EXPECT_EQ(factors.back(), -1.0F) << "written past the end";
      }
    }
  }
}

TEST(Dropout, DropsItsShare) {
  std::vector<float> factors(100'000);
  dropout_factors({.p = 0.25F, .key = 5}, 0, 100'000, 0, 100'000, factors.data());
  const auto dropped = std::count(factors.begin(), factors.end(), 0.0F);
  EXPECT_NEAR(static_cast<double>(dropped), 25'000, 700);  // five standard deviations
}

}  // namespace
}  // namespace longtune::ops::cpu
