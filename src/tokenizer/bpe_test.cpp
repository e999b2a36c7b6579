#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace longtune {
namespace {

using Merges = std::vector<TokenizerDefinition::Merge>;
using Tokens = std::vector<std::int32_t>;

/// Bytes are tokens 0 to 255; `lacking` has none.
Bpe::Options byte_tokens(std::string_view lacking = "") {
  Bpe::Options options;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool has = lacking.find(static_cast<char>(byte)) == std::string_view::npos;
    options.byte_symbols[byte] = has ? static_cast<std::int32_t>(byte) : -1;
  }
  return options;
}

Tokens encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  Tokens tokens;
  bpe.encode(word, scratch, tokens);
  return tokens;
}

TEST(Bpe, MergesByRankFromTheLeft) {
  const Bpe bpe(Merges{{'b', 'c', 300}, {'a', 'b', 301}, {'a', 'a', 302}, {302, 'a', 303}},
                byte_tokens());
  EXPECT_EQ(encode(bpe, "abc"), (Tokens{'a', 300})) << "(b, c) ranks before (a, b)";
  EXPECT_EQ(encode(bpe, "aba"), (Tokens{301, 'a'}));
  EXPECT_EQ(encode(bpe, "aaa"), (Tokens{303})) << "(aa)a, as the left pair merges first";
  EXPECT_EQ(encode(bpe, "aaaa"), (Tokens{302, 302}));
  EXPECT_EQ(encode(bpe, "aaaaa"), (Tokens{302, 303}));
  EXPECT_EQ(encode(bpe, ""), Tokens{});
}

TEST(Bpe, CountsTheLaterOfTwoRanks) {
  const Bpe bpe(Merges{{'a', 'b', 300}, {'b', 'c', 301}, {'a', 'b', 300}}, byte_tokens());
  EXPECT_EQ(encode(bpe, "abc"), (Tokens{'a', 301}));
}

TEST(Bpe, LeavesOutOrMarksBytesWithoutASymbol) {
  const Merges merges{{'a', 'b', 300}};
  Bpe::Options options = byte_tokens("xy");
  EXPECT_EQ(encode(Bpe(merges, options), "axyb"), (Tokens{300})) << "the neighbours meet";
  EXPECT_EQ(Bpe(merges, options).missing_bytes(), (std::vector<std::uint8_t>{'x', 'y'}));
  options.unknown = 400;
  EXPECT_EQ(encode(Bpe(merges, options), "axyb"), (Tokens{'a', 400, 400, 'b'}));
  options.fuse_unknown = true;
  EXPECT_EQ(encode(Bpe(merges, options), "axybx"), (Tokens{'a', 400, 'b', 400}));
}

/// The definition, word for word.
Tokens by_definition(const Merges& merges, Tokens tokens) {
  for (;;) {
    std::size_t best = merges.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].left == tokens[i] && merges[rank].right == tokens[i + 1]) {
          best = rank;
          at = i;
        }
      }
    }
    if (best == merges.size()) {
      return tokens;
    }
    tokens[at] = merges[best].merged;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, FollowsTheDefinitionForShortAndLongWords) {
  // Ranks in no helpful order: a merge may make a pair that ranks before it.
  const Merges merges{{301, 302, 305},
                      {'a', 'b', 300},
                      {300, 300, 301},
                      {'b', 'a', 302},
                      {'a', 'a', 303},
                      {303, 'b', 304},
                      {302, 'b', 306},
                      {301, 301, 307}};
  const Bpe bpe(merges, byte_tokens());
  std::uint32_t state = 12345;
  for (std::size_t size = 1; size < 160; ++size) {
    std::string word;
    for (std::size_t i = 0; i < size; ++i) {
      state = state * 1664525 + 1013904223;
      word.push_back((state >> 16) % 3 == 0 ? 'b' : 'a');
    }
    EXPECT_EQ(encode(bpe, word), by_definition(merges, Tokens(word.begin(), word.end()))) << word;
  }
}

TEST(Bpe, TakesALongWordInTime) {
  const Bpe bpe(Merges{{'a', 'a', 300}, {300, 300, 301}}, byte_tokens());
  const Tokens tokens = encode(bpe, std::string(400'000, 'a'));
  EXPECT_EQ(tokens.size(), 100'000U);
  EXPECT_TRUE(std::all_of(tokens.begin(), tokens.end(), [](auto id) { return id == 301; }));
}

}  // namespace
}  // namespace longtune
