// What parse_tokenizer_json reads and refuses.

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/definition.h"

namespace longtune {
namespace {

using nlohmann::json;

/// 256 bytes, "ab" and "abc", one special token.
json sound() {
  json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[spell_byte(static_cast<std::uint8_t>(byte))] = byte;
  }
  vocabulary["ab"] = 256;
  vocabulary["abc"] = 257;
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {
      {"added_tokens", {{{"id", 258}, {"content", "<end>"}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", json{"ab", "c"}}}}},
  };
}

TokenizerDefinition parse(const json& tokenizer, const std::string& config = "") {
  return parse_tokenizer_json(tokenizer.dump(), config, "t.json");
}

/// `patch` is laid over a sound file (JSON merge patch: null removes).
void expect_refusal(const char* patch, ErrorCode code, std::string_view part) {
  json tokenizer = sound();
  tokenizer.merge_patch(json::parse(patch));
  expect_error([&] { parse(tokenizer); }, code, part);
}

TEST(TokenizerJson, ReadsASoundFile) {
  const TokenizerDefinition definition =
      parse(sound(), R"({"eos_token": "<end>", "bos_token": {"content": "ab"}})");
  EXPECT_EQ(definition.spellings.size(), 259U);
  EXPECT_EQ(definition.spellings[258], "<end>");
  ASSERT_EQ(definition.merges.size(), 2U);
  EXPECT_EQ(definition.merges[1].left, 256);
  EXPECT_EQ(definition.merges[1].merged, 257);
  ASSERT_EQ(definition.added.size(), 1U);
  EXPECT_TRUE(definition.added[0].special);
  EXPECT_FALSE(definition.added[0].normalized) << "special tokens are not, unless told";
  EXPECT_EQ(definition.eos, 258);
  EXPECT_EQ(definition.bos, 256);
  EXPECT_FALSE(definition.adds_bos);
  EXPECT_FALSE(definition.unknown);
}

TEST(TokenizerJson, TheConfigurationAddsAndOverrides) {
  const TokenizerDefinition definition =
      parse(sound(),
            R"({"add_bos_token": true, "bos_token": "<new>", "added_tokens_decoder":
          {"258": {"content": "<end>", "lstrip": true}, "259": {"content": "<new>"}}})");
  ASSERT_EQ(definition.added.size(), 2U);
  EXPECT_TRUE(definition.added[0].lstrip);
  EXPECT_FALSE(definition.added[0].special);
  EXPECT_EQ(definition.bos, 259);
  EXPECT_TRUE(definition.adds_bos);
}

// With a scan of the earlier ones for each, these would take more than ten seconds.
TEST(TokenizerJson, ReadsManyAddedTokensInTimeNearTheirNumber) {
  constexpr int kCount = 200'000;
  json tokenizer = sound();
  json& added = tokenizer["added_tokens"];
  for (int i = 0; i < kCount; ++i) {
    added.push_back({{"id", 259 + i}, {"content", "<" + std::to_string(i) + ">"}});
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(parse(tokenizer).added.size(), kCount + 1U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST(TokenizerJson, RefusesWhatItDoesNotUnderstand) {
  const auto no = ErrorCode::kUnsupported;
  expect_refusal(R"({"model": {"type": "Unigram"}})", no, "model: 'Unigram' (only byte-level BPE");
  expect_refusal(R"({"model": {"type": "WordPiece"}})", no, "'WordPiece'");
  expect_refusal(R"({"model": {"byte_fallback": true}})", no, "model: byte_fallback");
  expect_refusal(R"({"model": {"dropout": 0.1}})", no, "dropout");
  expect_refusal(R"({"model": {"end_of_word_suffix": "</w>"}})", no, "end_of_word_suffix '</w>'");
  expect_refusal(R"({"normalizer": {"type": "Lowercase"}})", no, "normalizer 'Lowercase'");
  expect_refusal(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}})",
                 no,
                 "normalizers[0]: normalizer 'NFKC'");
  expect_refusal(R"({"pre_tokenizer": {"type": "Metaspace"}})", no, "pre_tokenizer 'Metaspace'");
  expect_refusal(R"({"pre_tokenizer": null})", no, "pre_tokenizer null");
  expect_refusal(R"({"pre_tokenizer": {"add_prefix_space": true}})", no, "add_prefix_space");
  expect_refusal(R"({"pre_tokenizer": {"use_regex": false}})", no, "'ByteLevel' with these");
  expect_refusal(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                     {"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"},
                     {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})",
                 no,
                 "pattern: the regex '\\w+'");
  expect_refusal(R"({"decoder": {"type": "Metaspace"}})", no, "a decoder other than ByteLevel");
  expect_refusal(R"({"post_processor": {"type": "BertProcessing"}})", no, "'BertProcessing'");
  expect_refusal(R"({"post_processor": {"type": "TemplateProcessing", "single": [
                     {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<end>"}}]}})",
                 no,
                 "a template other than [BOS] text");
}

TEST(TokenizerJson, RefusesWhatDisagrees) {
  const auto bad = ErrorCode::kBadInput;
  expect_refusal(R"({"model": {"vocab": {"abc": 256}}})", bad, "both have id 256");
  expect_refusal(R"({"model": {"vocab": {"abc": 9999}}})", bad, "'abc' has id 9999");
  expect_refusal(R"({"model": {"vocab": {"abc": -1}}})", bad, "'abc' must be a whole number");
  expect_refusal(R"({"model": {"vocab": {"abc": null}}})", bad, "'abc', which is no token");
  expect_refusal(R"({"model": {"vocab": [1]}})", bad, "model.vocab must be an object");
  expect_refusal(R"({"model": {"vocab": null}})", bad, "model.vocab");
  expect_refusal(R"({"model": {"merges": ["a  b"]}})", bad, "merge 0 is 'a  b'");
  expect_refusal(R"({"model": {"merges": ["a b", "x yz"]}})", bad, "merge 1 has 'yz'");
  expect_refusal(R"({"model": {"merges": [["a"]]}})", bad, "merges[0] must be two tokens");
  expect_refusal(R"({"model": {"merges": [7]}})", bad, "merges[0] must be two tokens");
  expect_refusal(R"({"model": {"merges": ["c b"]}})", bad, "merge 0 has 'cb'");
  expect_refusal(R"({"model": {"unk_token": "<unk>"}})", bad, "unk_token '<unk>'");
  expect_refusal(R"({"added_tokens": [{"id": 5, "content": "ab"}]})", bad, "is token 256 already");
  expect_refusal(R"({"added_tokens": [{"id": 300, "content": "x\ny"}]})", bad, "has id 300");
  expect_refusal(R"({"added_tokens": [{"id": 258, "content": ""}]})", bad, "is empty");
  expect_refusal(R"({"added_tokens": [{"content": "x"}]})", bad, "added_tokens[0].id is missing");
  expect_refusal(R"({"added_tokens": {}})", bad, "added_tokens must be an array");
  expect_refusal(R"({"normalizer": "NFC"})", bad, "normalizer must be an object");
}

TEST(TokenizerJson, RefusesBadConfigurations) {
  const auto expect = [](const char* config, std::string_view part) {
    expect_error([&] { parse(sound(), config); }, ErrorCode::kBadInput, part);
  };
  expect(R"({"eos_token": "<none>"})", "(tokenizer_config.json): eos_token '<none>' is no token");
  expect(R"({"eos_token": 7})", "eos_token must be a string, not 7");
  expect(R"({"add_bos_token": true})", "no");
  expect(R"({"add_bos_token": 1})", "add_bos_token must be true or false, not 1");
  expect(R"({"added_tokens_decoder": {"-1": {"content": "x"}}})", "'-1', which is no id");
  expect("[]", "the file must be an object");
  expect("{", "t.json (tokenizer_config.json)");
}

TEST(TokenizerJson, RefusesWhatIsNoObject) {
  for (const char* text : {"[]", "7", "null", "\"x\"", "{}", "", "{\"model\": 3}"}) {
    expect_error([&] { static_cast<void>(parse_tokenizer_json(text, "", "t.json")); },
                 ErrorCode::kBadInput,
                 "t.json");
  }
}

}  // namespace
}  // namespace longtune
