// Token ids against Hugging Face's tokenizers: scripts/goldens/make_tokenizers.py made the files.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "io/gguf.h"
#include "io/json.h"
#include "support/golden.h"
#include "tokenizer/normalize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace longtune {
namespace {

std::filesystem::path folder() {
  return test::goldens() / "tokenizers";
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

struct Case {
  std::string text;
  std::vector<std::int32_t> as_text;
  std::vector<std::int32_t> parsed;
};

std::vector<Case> cases_of(const std::string& tokenizer) {
  static const nlohmann::json all = read_json(folder() / "cases.json");
  std::vector<Case> cases;
  for (const auto& entry : all) {
    const auto& ids = entry.at("ids").at(tokenizer);
    cases.push_back({entry.contains("text") ? entry.at("text").get<std::string>()
                                            : from_hex(entry.at("hex").get<std::string>()),
                     ids.front().get<std::vector<std::int32_t>>(),
                     ids.back().get<std::vector<std::int32_t>>()});
  }
  return cases;
}

/// A name and the file's extension.
struct Source {
  std::string name;
  std::string extension;
};

Tokenizer load(const Source& source) {
  const std::filesystem::path path = folder() / (source.name + source.extension);
  if (source.extension == ".gguf") {
    return Tokenizer::load(path);
  }
  return Tokenizer::from_json(read_text(path), "", path.filename().string());
}

class TokenizerGolden : public testing::TestWithParam<Source> {};

/// Tokenizers that lose nothing: all bytes have symbols, and no added token takes spaces along.
class TokenizerRoundTrip : public testing::TestWithParam<Source> {};

TEST_P(TokenizerGolden, GivesTheIdsOfTheReference) {
  const Tokenizer tokenizer = load(GetParam());
  const std::vector<Case> cases = cases_of(GetParam().name);
  ASSERT_GE(cases.size(), 200U);
  for (const Case& c : cases) {
    EXPECT_EQ(tokenizer.encode(c.text, SpecialTokens::kAsText), c.as_text) << c.text;
    EXPECT_EQ(tokenizer.encode(c.text, SpecialTokens::kParse), c.parsed) << c.text;
  }
}

TEST_P(TokenizerRoundTrip, DecodesToTheRepairedText) {
  const Tokenizer tokenizer = load(GetParam());
  for (const Case& c : cases_of(GetParam().name)) {
    std::string repaired;
    std::string normal;
    std::string_view expected = repair_utf8(c.text, repaired);
    if (GetParam().name == "qwen2") {
      expected = normalize_nfc(expected, normal);
    }
    EXPECT_EQ(tokenizer.decode(c.parsed, false), expected);
    EXPECT_EQ(tokenizer.decode(c.as_text, true), expected) << "no token of a text is special";
  }
}

TEST_P(TokenizerGolden, NamesItsPreTokenizer) {
  const std::string expected = GetParam().name == "flags" ? "gpt2" : GetParam().name;
  EXPECT_EQ(load(GetParam()).pre_tokenizer(), expected);
}

std::string name_of_source(const testing::TestParamInfo<Source>& info) {
  return info.param.name + "_" + info.param.extension.substr(1);
}

INSTANTIATE_TEST_SUITE_P(All,
                         TokenizerGolden,
                         testing::Values(Source{"gpt2", ".json"},
                                         Source{"gpt2", ".gguf"},
                                         Source{"llama3", ".json"},
                                         Source{"llama3", ".gguf"},
                                         Source{"qwen2", ".json"},
                                         Source{"qwen2", ".gguf"},
                                         Source{"smollm", ".json"},
                                         Source{"smollm", ".gguf"},
                                         Source{"flags", ".json"}),
                         name_of_source);

INSTANTIATE_TEST_SUITE_P(All,
                         TokenizerRoundTrip,
                         testing::Values(Source{"gpt2", ".json"},
                                         Source{"llama3", ".gguf"},
                                         Source{"qwen2", ".json"}),
                         name_of_source);

TEST(TokenizerEnds, KnowsBosAndEos) {
  const Tokenizer llama = load({"llama3", ".gguf"});
  EXPECT_TRUE(llama.adds_bos()) << "what GGUF leaves open follows the family";
  EXPECT_EQ(llama.bos_token(), llama.token_id("<|endoftext|>"));
  EXPECT_EQ(llama.eos_token(), llama.token_id("<|endoftext|>"));
  EXPECT_TRUE(load({"llama3", ".json"}).adds_bos()) << "the post-processor adds it";
  EXPECT_FALSE(load({"smollm", ".gguf"}).adds_bos());
  EXPECT_FALSE(load({"smollm", ".gguf"}).bos_token());
}

TEST(TokenizerBytes, KnowsTheBytesItLacks) {
  const std::vector<std::uint8_t> lacking{0x04, 0x06, 0xC0, 0xF1, 0xF3, 0xF4, 0xFF};
  EXPECT_EQ(load({"smollm", ".json"}).missing_bytes(), lacking);
  EXPECT_EQ(load({"smollm", ".gguf"}).missing_bytes(), lacking);
}

}  // namespace
}  // namespace longtune
