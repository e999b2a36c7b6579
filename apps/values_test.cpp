#include "apps/values.h"

#include <gtest/gtest.h>

namespace longtune::cli {
namespace {

template <class T>
T parsed(std::string_view text) {
  T value{};
  parse_value(text, value);
  return value;
}

template <class T>
std::string refusal(std::string_view text) {
  try {
    (void)parsed<T>(text);
  } catch (const BadValue& error) {
    return error.what();
  }
  return "";
}

TEST(Values, AreReadWhole) {
  EXPECT_EQ(parsed<std::int64_t>("-12"), -12);
  EXPECT_EQ(parsed<double>("2e-4"), 2e-4);
  EXPECT_TRUE(parsed<bool>("true"));
  EXPECT_EQ(parsed<Size>("1.5GiB").bytes, 1610612736);
  EXPECT_EQ(parsed<std::vector<std::int64_t>>("0, 512,1024"),
            (std::vector<std::int64_t>{0, 512, 1024}));
  EXPECT_EQ(parsed<std::optional<std::int64_t>>("7"), 7);
}

TEST(Values, RopeScaling) {
  EXPECT_FALSE(parsed<RopeChoice>("file").has_value());
  for (const std::string text :
       {"file", "none", "linear:2", "linear:1", "yarn:1.5", "yarn:65536"}) {
    EXPECT_EQ(text_of(parsed<RopeChoice>(text)), text);
  }
  for (const std::string text : {"",
                                 "yarn",
                                 "linear:",
                                 "linear:x",
                                 "linear:2x",
                                 "yarn:0.5",
                                 "yarn:nan",
                                 "yarn:inf",
                                 "linear:-2",
                                 "linear:1e9",
                                 "none:2",
                                 "llama3:2",
                                 ":2"}) {
    EXPECT_EQ(refusal<RopeChoice>(text),
              "'" + text +
                  "' is none of file, none, linear:F and yarn:F with a factor F from 1 to 65536");
  }
}

TEST(Values, RefusalsNameTheValue) {
  EXPECT_EQ(refusal<std::int64_t>("12x"), "'12x' is no whole number");
  EXPECT_EQ(refusal<std::int64_t>("1e3"), "'1e3' is no whole number");
  EXPECT_EQ(refusal<std::int64_t>("99999999999999999999"),
            "'99999999999999999999' is no whole number");
  EXPECT_EQ(refusal<std::uint64_t>("-1"), "'-1' is no whole number of at least 0");
  EXPECT_EQ(refusal<double>("nan"), "'nan' is no number");
  EXPECT_EQ(refusal<double>(""), "'' is no number");
  EXPECT_EQ(refusal<bool>("yes"), "'yes' is neither true nor false");
  EXPECT_EQ(refusal<Size>("16 gigs"),
            "'16 gigs' is no size; sizes are like 16GiB, 512MiB, 2GB, or a number of bytes");
  EXPECT_EQ(refusal<std::vector<std::int64_t>>("1,,2"), "'' is no whole number");
  EXPECT_EQ(refusal<Warmup>("-1"), "'-1' is neither a number of steps nor a share like 10%");
  EXPECT_EQ(refusal<Warmup>("120%"), "'120%' is no share from 0% to 100%");
}

TEST(Values, WarmupIsStepsOrAShare) {
  EXPECT_EQ(parsed<Warmup>("8").steps_of(100), 8);
  EXPECT_EQ(parsed<Warmup>("15%").steps_of(40), 6);
  EXPECT_EQ(parsed<Warmup>("10%").steps_of(11), 2);
  for (const char* text : {"15%", "0.5%", "0", "10000000000000000", "9007199254740993"}) {
    EXPECT_EQ(text_of(parsed<Warmup>(text)), text);
  }
}

TEST(Values, TextIsReadBackTheSame) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1000}, std::int64_t{1} << 34}) {
    EXPECT_EQ(parsed<Size>(text_of(Size{bytes})).bytes, bytes);
  }
  EXPECT_EQ(text_of(Size{std::int64_t{1} << 34}), "16GiB");
  for (const double number : {2e-4, 0.1, 1.0, 1e-300}) {
    EXPECT_EQ(parsed<double>(text_of(number)), number);
  }
}

TEST(Values, TheNearestNameIsSuggested) {
  const std::vector<std::string> known = {"steps", "segment", "lora-rank"};
  EXPECT_EQ(nearest_name("step", known), "steps");
  EXPECT_EQ(nearest_name("lora_rank", known), "lora-rank");
  EXPECT_EQ(nearest_name("lora", known), "lora-rank");
  EXPECT_FALSE(nearest_name("temperature", known).has_value());
}

}  // namespace
}  // namespace longtune::cli
