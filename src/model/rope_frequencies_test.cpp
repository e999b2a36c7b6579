#include <gtest/gtest.h>

#include <cmath>

#include "io/json.h"
#include "model/config.h"
#include "model/hf_config.h"

namespace longtune {
namespace {

TEST(RopeFrequencies, EqualThoseOfTransformers) {
  const auto cases = read_json(LONGTUNE_GOLDENS "/rope.json");
  ASSERT_GE(cases.size(), 14U);
  for (const auto& golden : cases) {
    const ModelConfig config = parse_hf_config(golden["config"], "golden");
    const RopeFrequencies got = rope_frequencies(config.rope, config.D);
    const auto& want = golden["frequencies"];
    ASSERT_EQ(got.frequencies.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto expected = want[i].get<double>();
      // Two units in the last place: the reference's vectorised power is off by up to one.
      EXPECT_NEAR(got.frequencies[i], expected, expected * std::ldexp(1.0, -22))
          << golden["config"]["rope_parameters"] << " at " << i;
    }
    EXPECT_NEAR(got.scale, golden["scale"].get<double>(), 1e-6)
        << golden["config"]["rope_parameters"];
  }
}

// Worked by hand: theta 10000 and D 4 give frequencies 1 and 1/100.
TEST(RopeFrequencies, PlainLinearAndDivided) {
  RopeConfig rope;
  EXPECT_EQ(rope_frequencies(rope, 4).frequencies, (std::vector{1.0F, 0.01F}));
  rope.divisors = {1, 8};
  EXPECT_EQ(rope_frequencies(rope, 4).frequencies, (std::vector{1.0F, 0.01F / 8}));
  rope.divisors.clear();
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  EXPECT_EQ(rope_frequencies(rope, 4).frequencies, (std::vector{0.25F, 0.0025F}));
  EXPECT_EQ(rope_frequencies(rope, 4).scale, 1.0F);
}

}  // namespace
}  // namespace longtune
