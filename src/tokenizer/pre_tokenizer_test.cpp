#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <vector>

namespace longtune {
namespace {

using Strings = std::vector<std::string>;

Strings words(PreTokenizerKind kind, std::string_view text) {
  const PreTokenizer pre_tokenizer(kind);
  Words walk(pre_tokenizer);
  walk.start(text);
  Strings result;
  for (std::string_view word = walk.next(); !word.empty(); word = walk.next()) {
    result.emplace_back(word);
  }
  return result;
}

TEST(PreTokenizer, CutsAsGpt2Does) {
  const auto gpt2 = PreTokenizerKind::kGpt2;
  EXPECT_EQ(words(gpt2, "Don't  stop 12 34!?\n"),
            (Strings{"Don", "'t", " ", " stop", " 12", " 34", "!?", "\n"}));
  EXPECT_EQ(words(gpt2, "DON'T"), (Strings{"DON", "'", "T"})) << "contractions are lower case";
  EXPECT_EQ(words(gpt2, "a   "), (Strings{"a", "   "})) << "white space at the end stays whole";
}

TEST(PreTokenizer, CutsAsLlama3Does) {
  const auto llama3 = PreTokenizerKind::kLlama3;
  EXPECT_EQ(words(llama3, "DON'T 12345;\n\n  x"),
            (Strings{"DON", "'T", " ", "123", "45", ";\n\n", " ", " x"}));
  EXPECT_EQ(words(llama3, "(a)\n \n b"), (Strings{"(a", ")\n", " \n", " b"}));
}

TEST(PreTokenizer, CutsAsQwen2Does) {
  EXPECT_EQ(words(PreTokenizerKind::kQwen2, "in 1816"), (Strings{"in", " ", "1", "8", "1", "6"}));
}

TEST(PreTokenizer, CutsAsSmolLmDoes) {
  const auto smollm = PreTokenizerKind::kSmolLm;
  EXPECT_EQ(words(smollm, "in 1816"), (Strings{"in", " ", "1", "8", "1", "6"}));
  EXPECT_EQ(words(smollm, "a   1"), (Strings{"a", "   ", "1"}))
      << "a numeral is isolated first, so that white space before it ends its piece";
  EXPECT_EQ(words(smollm, "a   b"), (Strings{"a", "  ", " b"}));
}

TEST(PreTokenizer, TakesUnicodesWhiteSpace) {
  const auto gpt2 = PreTokenizerKind::kGpt2;
  EXPECT_EQ(words(gpt2, "\xC2\x85\xE3\x80\x80"), (Strings{"\xC2\x85\xE3\x80\x80"}));
  EXPECT_EQ(words(gpt2, " \xE1\xA0\x8E"), (Strings{" \xE1\xA0\x8E"}))
      << "U+180E is none, though PCRE2 takes it for some";
}

TEST(PreTokenizer, KnowsLettersAndNumbersOfUnicode16) {
  EXPECT_EQ(words(PreTokenizerKind::kGpt2, "a\xF0\xB1\x8D\x90"), (Strings{"a\xF0\xB1\x8D\x90"}))
      << "U+31350, of Unicode 15, is a letter";
  EXPECT_EQ(words(PreTokenizerKind::kLlama3, "1\xF0\x9C\xB3\xB0"), (Strings{"1\xF0\x9C\xB3\xB0"}))
      << "U+1CCF0, of Unicode 16, is a number";
}

TEST(PreTokenizer, WalksOverOneTextAfterAnother) {
  const PreTokenizer pre_tokenizer(PreTokenizerKind::kGpt2);
  Words walk(pre_tokenizer);
  walk.start("a b");
  EXPECT_EQ(walk.next(), "a");
  walk.start("c");
  EXPECT_EQ(walk.next(), "c");
  EXPECT_EQ(walk.next(), "");
}

TEST(PreTokenizer, MatchesAMegabyteAtOnce) {
  const std::string text(1 << 20, '!');
  for (const auto kind : {PreTokenizerKind::kGpt2, PreTokenizerKind::kLlama3}) {
    EXPECT_EQ(words(kind, text).size(), 1U);
  }
  const std::string spaces = std::string(1 << 20, ' ') + "x";
  EXPECT_EQ(words(PreTokenizerKind::kQwen2, spaces).size(), 2U);
}

TEST(PreTokenizer, IsNamed) {
  EXPECT_STREQ(name_of(PreTokenizerKind::kGpt2), "gpt2");
  EXPECT_EQ(pre_tokenizer_of_gguf("llama-bpe"), PreTokenizerKind::kLlama3);
  EXPECT_EQ(pre_tokenizer_of_gguf("smollm"), PreTokenizerKind::kSmolLm);
  EXPECT_FALSE(pre_tokenizer_of_gguf("tekken"));
  EXPECT_FALSE(pre_tokenizer_of_regex(R"(\w+)"));
}

}  // namespace
}  // namespace longtune
