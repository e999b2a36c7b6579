#include "apps/config_json.h"

#include <gtest/gtest.h>

namespace longtune::cli {
namespace {

TEST(ConfigJson, NamesTheScalingOfRope) {
  ModelConfig config;
  EXPECT_EQ(config_json(config)["rope"]["scaling"], "none");
  config.rope.scaling = RopeScaling::kYarn;
  EXPECT_EQ(config_json(config)["rope"]["scaling"], "yarn");
  config.rope.scaling = RopeScaling::kNone;
  config.rope.divisors = {1, 8};
  EXPECT_EQ(config_json(config)["rope"]["scaling"], "divisors");
}

TEST(ConfigJson, HasEveryBias) {
  ModelConfig config;
  config.o_bias = true;
  const Json json = config_json(config);
  EXPECT_EQ(json["qkv_bias"], false);
  EXPECT_EQ(json["o_bias"], true);
  EXPECT_EQ(json["mlp_bias"], false);
}

}  // namespace
}  // namespace longtune::cli
