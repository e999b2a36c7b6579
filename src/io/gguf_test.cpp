#include "io/gguf.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "io/gguf_builder.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

Gguf parse(const std::string& bytes) {
  const MemoryReader reader("m.gguf", std::as_bytes(std::span(bytes)));
  return Gguf::parse(reader);
}

TEST(Gguf, ReadsEveryValueType) {
  GgufBuilder file;
  file.value("a.u8", GgufType::kU8, std::uint8_t{200});
  file.value("a.i8", GgufType::kI8, std::int8_t{-3});
  file.value("a.u16", GgufType::kU16, std::uint16_t{60000});
  file.value("a.i16", GgufType::kI16, std::int16_t{-30000});
  file.value("a.u32", GgufType::kU32, std::uint32_t{4000000000});
  file.value("a.i32", GgufType::kI32, std::int32_t{-7});
  file.value("a.u64", GgufType::kU64, std::uint64_t{1} << 40U);
  file.value("a.i64", GgufType::kI64, std::int64_t{-9});
  file.value("a.f32", GgufType::kF32, 0.5F);
  file.value("a.f64", GgufType::kF64, 0.1);
  file.value("a.bool", GgufType::kBool, std::uint8_t{1});
  file.string("a.string", "héllo");
  const Gguf gguf = parse(file.bytes());
  EXPECT_EQ(gguf.integer("a.u8"), 200);
  EXPECT_EQ(gguf.integer("a.i8"), -3);
  EXPECT_EQ(gguf.integer("a.u16"), 60000);
  EXPECT_EQ(gguf.integer("a.i16"), -30000);
  EXPECT_EQ(gguf.integer("a.u32"), 4000000000);
  EXPECT_EQ(gguf.integer("a.i32"), -7);
  EXPECT_EQ(gguf.integer("a.u64"), std::int64_t{1} << 40U);
  EXPECT_EQ(gguf.integer("a.i64"), -9);
  EXPECT_EQ(gguf.number("a.f32"), 0.5);
  EXPECT_EQ(gguf.number("a.f64"), 0.1);
  EXPECT_EQ(gguf.number("a.i64"), -9.0);
  EXPECT_EQ(gguf.boolean("a.bool"), true);
  EXPECT_EQ(gguf.string("a.string"), "héllo");
  EXPECT_EQ(gguf.find("a.none"), nullptr);
  EXPECT_EQ(gguf.integer("a.none"), std::nullopt);
}

TEST(Gguf, ReadsArrays) {
  GgufBuilder file;
  file.strings("t.tokens", {"a", "", "Ġthe"});
  file.array<std::int32_t>("t.types", GgufType::kI32, {1, -2, 3});
  file.array<float>("t.scores", GgufType::kF32, {0.5F, -1});
  const Gguf gguf = parse(file.bytes());
  const GgufValue* tokens = gguf.strings("t.tokens");
  ASSERT_NE(tokens, nullptr);
  ASSERT_EQ(tokens->size(), 3);
  EXPECT_EQ(tokens->string(0), "a");
  EXPECT_EQ(tokens->string(1), "");
  EXPECT_EQ(tokens->string(2), "Ġthe");
  const GgufValue* types = gguf.integers("t.types");
  ASSERT_EQ(types->size(), 3);
  EXPECT_EQ(types->integer(1), -2);
  EXPECT_EQ(gguf.find("t.scores")->number(1), -1.0);
}

TEST(Gguf, RefusesOtherTypesThanAsked) {
  GgufBuilder file;
  file.string("a", "x");
  file.value("big", GgufType::kU64, ~std::uint64_t{0});
  file.strings("list", {"x"});
  const Gguf gguf = parse(file.bytes());
  expect_error([&] { (void)gguf.integer("a"); },
               ErrorCode::kBadInput,
               "[gguf] m.gguf: key 'a' is of type string, not an integer of 63 bits");
  expect_error([&] { (void)gguf.integer("big"); }, ErrorCode::kBadInput, "'big'");
  expect_error([&] { (void)gguf.string("list"); },
               ErrorCode::kBadInput,
               "key 'list' is an array of string, not a string");
  expect_error([&] { (void)gguf.strings("a"); }, ErrorCode::kBadInput, "an array of strings");
  expect_error([&] { (void)gguf.integers("list"); }, ErrorCode::kBadInput, "an array of integers");
}

TEST(Gguf, PlacesTensors) {
  GgufBuilder file;
  file.tensor("v", 0, {3}, std::string(12, 'v'));
  file.tensor("q", 3, {64, 2}, std::string(80, 'q'));
  const std::string bytes = file.bytes();
  const Gguf gguf = parse(bytes);
  ASSERT_EQ(gguf.tensors().size(), 2U);
  const GgufTensor& q = gguf.tensors()[1];
  EXPECT_EQ(q.name, "q");
  EXPECT_EQ(q.bytes, 80);
  EXPECT_EQ(gguf_tensor_type_name(q.type), "Q4_1");
  EXPECT_EQ(bytes.substr(static_cast<std::size_t>(q.offset), 80), std::string(80, 'q'));
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  expect_error([] { parse(""); }, ErrorCode::kBadInput, "m.gguf: is no GGUF file");
  expect_error([] { parse("PK\3\4 and so on"); }, ErrorCode::kBadInput, "is no GGUF file");
  std::string bytes = GgufBuilder().bytes();
  bytes[4] = 1;
  expect_error([&] { parse(bytes); }, ErrorCode::kUnsupported, "has GGUF version 1");
  bytes[4] = 0;
  bytes[7] = 3;
  expect_error([&] { parse(bytes); }, ErrorCode::kUnsupported, "big-endian");
}

TEST(Gguf, RefusesEveryTruncation) {
  GgufBuilder file;
  file.string("name", "tiny");
  file.strings("t.tokens", {"a", "b"});
  file.tensor("v", 0, {3}, std::string(12, 'v'));
  const std::string bytes = file.bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    expect_error([&] { parse(bytes.substr(0, length)); }, ErrorCode::kBadInput, "m.gguf");
  }
}

TEST(Gguf, RefusesAbsurdCounts) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0} / 2;
  GgufBuilder keys;
  keys.claim_keys = kHuge;
  expect_error([&] { parse(keys.bytes()); }, ErrorCode::kBadInput, "metadata keys, but at most");
  GgufBuilder tensors;
  tensors.claim_tensors = kHuge;
  expect_error([&] { parse(tensors.bytes()); }, ErrorCode::kBadInput, "tensors, but at most");
  GgufBuilder list;
  list.raw("list", GgufType::kArray, little_endian(std::uint32_t{4}) + little_endian(kHuge));
  expect_error([&] { parse(list.bytes()); }, ErrorCode::kBadInput, "key 'list' claims");
  GgufBuilder text;
  text.raw("text", GgufType::kString, little_endian(kHuge));
  expect_error([&] { parse(text.bytes()); }, ErrorCode::kBadInput, "goes past the end");
}

// Each file is long enough, in holes, for what its header claims.
TEST(Gguf, RefusesClaimsBeyondItsLimitsInFilesThatHaveRoom) {
  const TemporaryDirectory directory;
  const auto refuses = [&](const std::string& begin, std::int64_t size, std::string_view part) {
    const auto path = directory.write("m.gguf", begin);
    std::filesystem::resize_file(path, size);
    expect_error([&] { (void)Gguf::parse(File(path)); }, ErrorCode::kBadInput, part);
  };
  const auto head = [](std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + little_endian(std::uint32_t{3}) + little_endian(tensors) + little_endian(keys);
  };
  GgufBuilder text;
  text.raw("text", GgufType::kString, little_endian(std::uint64_t{512} << 20U));
  refuses(text.bytes(),
          std::int64_t{1} << 30U,
          "a string of 536870912 bytes at byte 48 goes past the end at byte 536870912");
  refuses(head(0, 1) + little_endian(std::uint64_t{65'536}),
          1 << 20U,
          "a metadata key at byte 32 claims 65536 bytes; at most 65535 are read");
  refuses(head(1, 0) + little_endian(std::uint64_t{65'536}),
          1 << 20U,
          "a tensor's name at byte 32 claims 65536 bytes; at most 65535 are read");
  refuses(
      head(0, 100'001), 1 << 24U, "claims 100001 metadata keys, but at most 100000 can be there");
  refuses(head(1'000'001, 0), 1 << 26U, "claims 1000001 tensors, but at most 1000000 can be there");
}

TEST(Gguf, RefusesBadEntries) {
  GgufBuilder twice;
  twice.string("a", "x");
  twice.string("a", "y");
  expect_error([&] { parse(twice.bytes()); }, ErrorCode::kBadInput, "has key 'a' twice");
  GgufBuilder type;
  type.raw("a", static_cast<GgufType>(13), "");
  expect_error([&] { parse(type.bytes()); }, ErrorCode::kBadInput, "unknown type 13");
  GgufBuilder nested;
  nested.raw("a", GgufType::kArray, little_endian(std::uint32_t{9}) + std::string(32, '\0'));
  expect_error([&] { parse(nested.bytes()); }, ErrorCode::kUnsupported, "array of arrays");
  GgufBuilder alignment;
  alignment.value("general.alignment", GgufType::kU32, std::uint32_t{24});
  expect_error([&] { parse(alignment.bytes()); }, ErrorCode::kBadInput, "general.alignment is 24");
}

TEST(Gguf, RefusesBadTensors) {
  GgufBuilder twice;
  twice.tensor("v", 0, {1}, "1234");
  twice.tensor("v", 0, {1}, "1234");
  expect_error([&] { parse(twice.bytes()); }, ErrorCode::kBadInput, "has tensor 'v' twice");

  GgufBuilder overlap;
  overlap.tensor("v", 0, {16}, std::string(64, '.'));
  overlap.tensor_at("w", 0, {1}, 32);
  expect_error([&] { parse(overlap.bytes()); }, ErrorCode::kBadInput, "'v' and 'w' overlap");

  GgufBuilder past;
  past.tensor_at("v", 0, {1}, std::int64_t{1} << 40U);
  expect_error([&] { parse(past.bytes()); }, ErrorCode::kBadInput, "goes past the end");

  GgufBuilder wrap;
  wrap.tensor_at("v", 0, {1}, 0x7FFFFFFFFFFFFFE0);
  expect_error([&] { parse(wrap.bytes()); }, ErrorCode::kBadInput, "goes past the end");

  GgufBuilder crooked;
  crooked.tensor_at("v", 0, {1}, 4);
  expect_error([&] { parse(crooked.bytes()); }, ErrorCode::kBadInput, "has offset 4, no multiple");

  GgufBuilder absurd;
  absurd.tensor_at("v", 0, {std::int64_t{1} << 40U, std::int64_t{1} << 40U}, 0);
  expect_error([&] { parse(absurd.bytes()); }, ErrorCode::kBadInput, "absurd size");

  GgufBuilder empty;
  empty.tensor_at("v", 0, {0}, 0);
  expect_error([&] { parse(empty.bytes()); }, ErrorCode::kBadInput, "has a dimension of 0");

  GgufBuilder ragged;
  ragged.tensor_at("v", 8, {33}, 0);
  expect_error([&] { parse(ragged.bytes()); }, ErrorCode::kBadInput, "rows of 33 values");
}

}  // namespace
}  // namespace longtune
