#include "io/json.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

TEST(Json, ReadsTypedFields) {
  const auto json = parse_json(R"({"n": 3, "x": 0.5, "b": true, "s": "t", "z": null})", "c.json");
  const JsonFields fields(json, "c.json");
  EXPECT_EQ(fields.integer("n"), 3);
  EXPECT_EQ(fields.number("n"), 3.0);
  EXPECT_EQ(fields.number("x"), 0.5);
  EXPECT_EQ(fields.boolean("b"), true);
  EXPECT_EQ(fields.string("s"), "t");
  EXPECT_EQ(fields.string("z"), std::nullopt);
  EXPECT_EQ(fields.integer("none"), std::nullopt);
  EXPECT_EQ(fields.required_integer("n"), 3);
}

TEST(Json, RefusesOtherTypesAndAbsentFields) {
  const auto json = parse_json(R"({"x": 0.5, "s": "t", "big": 9223372036854775808})", "c.json");
  const JsonFields fields(json, "c.json");
  expect_error([&] { (void)fields.integer("x"); },
               ErrorCode::kBadInput,
               "[json] c.json: 'x' is 0.5, not an integer of 63 bits");
  expect_error([&] { (void)fields.integer("big"); }, ErrorCode::kBadInput, "9223372036854775808");
  expect_error([&] { (void)fields.number("s"); }, ErrorCode::kBadInput, "'s' is string");
  expect_error([&] { (void)fields.required_string("y"); }, ErrorCode::kBadInput, "lacks 'y'");
  const auto list = parse_json("[1]", "c.json");
  expect_error([&] { JsonFields(list, "c.json"); }, ErrorCode::kBadInput, "is a JSON array");
}

TEST(Json, RefusesMalformedText) {
  for (const char* text : {"", "{", "{\"a\": 1,}", "[1] 2", "nul", "\"\xFF\"", "{\"a\" 1}"}) {
    expect_error([&] { (void)parse_json(text, "c.json"); }, ErrorCode::kBadInput, "no valid JSON");
  }
  expect_error([] { (void)parse_json("[1e999]", "c.json"); }, ErrorCode::kBadInput, "a number");
  expect_error([] { (void)parse_json(R"({"a": {"k": 1, "k": 2}})", "c.json"); },
               ErrorCode::kBadInput,
               "c.json: has key 'k' twice");
  expect_error([] { (void)parse_json(std::string(100, '['), "c.json"); },
               ErrorCode::kBadInput,
               "deeper than 64");
}

TEST(Json, NestsAsDeepAsItSays) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(64), "c.json").is_array());
  expect_error([&] { (void)parse_json(nested(65), "c.json"); },
               ErrorCode::kBadInput,
               "c.json: is nested deeper than 64");
}

// A look at all earlier objects after each would take minutes.
TEST(Json, ReadsManyObjectsInTimeNearTheirNumber) {
  constexpr std::size_t kCount = 400'000;
  std::string text = "[{}";
  for (std::size_t i = 1; i < kCount; ++i) {
    text += ",{}";
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text + "]", "c.json").size(), kCount);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Json, LimitsTheFile) {
  const TemporaryDirectory directory;
  const auto path = directory.write("c.json", "[1, 2, 3]");
  EXPECT_EQ(read_json(path).size(), 3U);
  expect_error([&] { (void)read_json(path, 8); }, ErrorCode::kBadInput, "has 9 bytes");
}

}  // namespace
}  // namespace longtune
