#include "ops/cpu/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/test_weights.h"

namespace longtune::ops::cpu {
namespace {

TEST(Softmax, ExponentialsAreAccurateAndSumUp) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const std::int64_t count : {1, 7, 8, 9, 1000}) {
      const std::vector<float> values = random_values(count, 3, 40, -40);
      const float largest = softmax_kernels().largest(values.data(), count);
      EXPECT_EQ(largest, *std::max_element(values.begin(), values.end()));
      std::vector<float> powers = values;
      const double sum = softmax_kernels().exponentiate(powers.data(), count, largest);
      EXPECT_DOUBLE_EQ(sum, std::accumulate(powers.begin(), powers.end(), 0.0));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double exact = std::exp(static_cast<double>(values[i] - largest));
        ASSERT_NEAR(powers[i] / exact, 1, 3e-7) << name_of(isa) << " e^" << values[i] - largest;
      }
      softmax_kernels().multiply(powers.data(), count, 2);
      EXPECT_NEAR(std::accumulate(powers.begin(), powers.end(), 0.0), 2 * sum, 1e-9);
    }
  }
}

TEST(Softmax, FarBelowTheLargestIsNextToNothing) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    std::vector<float> values = {-INFINITY, -1e30F, -200, 0};
    EXPECT_FLOAT_EQ(static_cast<float>(softmax_kernels().exponentiate(values.data(), 4, 0)), 1);
    EXPECT_EQ(values[3], 1);
    EXPECT_LT(values[0], 1e-37F);
    EXPECT_LT(values[2], 1e-37F);
  }
}

TEST(Softmax, OneNanOrInfinityShowsInTheSum) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const float bad : {NAN, INFINITY}) {
      for (const std::size_t at : {0, 5, 16}) {
        std::vector<float> values(17, 1.0F);
        values[at] = bad;
        const float largest = softmax_kernels().largest(values.data(), 17);
        EXPECT_TRUE(std::isnan(softmax_kernels().exponentiate(values.data(), 17, largest)))
            << name_of(isa) << " " << bad << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace longtune::ops::cpu
