#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstring>

#include "io/safetensors_builder.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

Safetensors parse(const std::string& bytes) {
  const MemoryReader reader("m.safetensors", std::as_bytes(std::span(bytes)));
  return Safetensors::parse(reader);
}

void refuses(const std::string& header,
             std::size_t data_bytes,
             std::string_view part,
             ErrorCode code = ErrorCode::kBadInput) {
  expect_error([&] { parse(safetensors_bytes(header, std::string(data_bytes, '.'))); }, code, part);
}

TEST(Safetensors, ReadsEntries) {
  const std::string bytes =
      safetensors_bytes(R"({"__metadata__": {"format": "pt"},)"
                        R"( "w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},)"
                        R"( "b": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},)"
                        R"( "e": {"dtype": "F32", "shape": [0, 9], "data_offsets": [4, 4]}})",
                        "abcdwwwwwwwwwwww");
  const Safetensors file = parse(bytes);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const SafetensorsTensor* w = file.find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(w->bytes, 12);
  EXPECT_EQ(bytes.substr(static_cast<std::size_t>(w->offset)), "wwwwwwwwwwww");
  EXPECT_EQ(file.find("v"), nullptr);
}

TEST(Safetensors, RefusesAbsurdHeaders) {
  expect_error([] { parse("1234567"); }, ErrorCode::kBadInput, "has 7 bytes");
  std::string bytes = safetensors_bytes("{}", "");
  bytes[0] = 3;
  expect_error([&] { parse(bytes); },
               ErrorCode::kBadInput,
               "[safetensors] m.safetensors: claims a header of 3 bytes, but the file has 2");
  bytes[7] = '\x7F';
  expect_error(
      [&] { parse(bytes); }, ErrorCode::kBadInput, "claims a header of 9151314442816847875");
  refuses("[]", 0, "JSON array");
  refuses("{", 0, "no valid JSON");
  refuses(R"({"__metadata__": {"a": 1}})", 0, "'a' is no string");
}

TEST(Safetensors, RefusesAHeaderBeyondTheFormatsLimitInAFileThatHasIt) {
  const TemporaryDirectory directory;
  std::string length = safetensors_bytes("", "");
  const std::uint64_t claim = 100'000'001;
  std::memcpy(length.data(), &claim, sizeof claim);
  const auto path = directory.write("m.safetensors", length);
  std::filesystem::resize_file(path, 8 + claim);  // sparse
  expect_error(
      [&] { (void)Safetensors::parse(File(path)); },
      ErrorCode::kBadInput,
      "claims a header of 100000001 bytes, but the file has 100000001 after its length and "
      "at most 100000000 are read");
}

TEST(Safetensors, RefusesBadEntries) {
  refuses(R"({"w": 3})", 0, "tensor 'w': is a JSON number");
  refuses(R"({"w": {"shape": [1], "data_offsets": [0, 4]}})", 4, "lacks 'dtype'");
  refuses(R"({"w": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}})",
          4,
          "unknown dtype 'F33'",
          ErrorCode::kUnsupported);
  refuses(R"({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "no size");
  refuses(R"({"w": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", 4, "shape is no list");
  refuses(R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4]}})", 4, "claims bytes 4");
  refuses(R"({"w": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})",
          0,
          "absurd size");
  refuses(R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},)"
          R"( "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
          8,
          "has key 'w' twice");
}

TEST(Safetensors, RefusesBadPlaces) {
  const auto two = [](const char* v, const char* w) {
    return fmt::format(R"({{"v": {{"dtype": "F32", "shape": [1], "data_offsets": [{}]}},)"
                       R"( "w": {{"dtype": "F32", "shape": [1], "data_offsets": [{}]}}}})",
                       v,
                       w);
  };
  refuses(two("0, 4", "4, 8"), 7, "tensor 'w' claims bytes 4 to 8 of the data, but the file has 7");
  refuses(two("0, 4", "8, 4"), 8, "claims bytes 8 to 4");
  refuses(two("0, 4", "2, 6"), 6, "'v' and 'w' overlap");
  refuses(two("0, 4", "0, 4"), 4, "overlap");
  refuses(two("0, 4", "8, 12"), 12, "belong to no tensor");
  refuses(two("0, 4", "4, 8"), 9, "belong to no tensor");
  refuses(two("0, 4", "4, 9"), 9, "tensor 'w' has 5 bytes, but 1 of F32 takes 4");
  refuses(two("0, 4", "0, 9223372036854775807"), 8, "claims bytes 0 to 9223372036854775807");
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "m.safetensors";
  const std::string data = "0123456789";
  SafetensorsWriter writer(
      path, {{"w", "F16", {2, 2}, 0, 0}, {"a", "U8", {2}, 0, 0}}, {{"format", "pt"}});
  writer.write(std::as_bytes(std::span(data).first(3)));
  expect_error([&] { writer.finish(); }, ErrorCode::kInvalidArgument, "7 bytes have not been");
  writer.write(std::as_bytes(std::span(data).subspan(3)));
  expect_error([&] { writer.write(std::as_bytes(std::span(data))); },
               ErrorCode::kInvalidArgument,
               "10 bytes are written where 0");
  writer.finish();
  const File file(path);
  const Safetensors read = Safetensors::parse(file);
  EXPECT_EQ(read.metadata().at("format"), "pt");
  std::string bytes(2, ' ');
  ASSERT_NE(read.find("a"), nullptr);
  file.read_at(read.find("a")->offset, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, "89");
  EXPECT_EQ(read.find("w")->offset % 8, 0);
}

TEST(SafetensorsWriter, RefusesImpossibleTensors) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "m.safetensors";
  using Tensors = std::vector<SafetensorsTensor>;
  for (const Tensors& tensors : {Tensors{{"w", "F33", {1}, 0, 0}},
                                 Tensors{{"w", "F32", {-1}, 0, 0}},
                                 Tensors{{"w", "F32", {1}, 0, 0}, {"w", "F32", {1}, 0, 0}}}) {
    expect_error([&] { SafetensorsWriter(path, tensors, {}); },
                 ErrorCode::kInvalidArgument,
                 "cannot write tensor 'w'");
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace longtune
