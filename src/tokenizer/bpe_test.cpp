#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
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

/// Whole numbers that look random.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : state_(seed) {}

  /// In [0, bound).
  std::uint32_t below(std::size_t bound) {
    state_ = state_ * 1664525 + 1013904223;
    return (state_ >> 8) % static_cast<std::uint32_t>(bound);
  }

 private:
  std::uint32_t state_;
};

/// Merges of different pairs of a, b, c and one another, in no helpful order: one may make a pair
/// that ranks before it, or take a symbol from a pair that waits.
Merges random_merges(Numbers& random) {
  std::vector<std::int32_t> symbols{'a', 'b', 'c'};
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  Merges merges;
  for (std::int32_t made = 300; made < 330; ++made) {
    const std::int32_t left = symbols[random.below(symbols.size())];
    const std::int32_t right = symbols[random.below(symbols.size())];
    if (pairs.emplace(left, right).second) {
      merges.push_back({left, right, made});
      symbols.push_back(made);
    }
  }
  for (std::size_t i = merges.size() - 1; i > 0; --i) {
    std::swap(merges[i], merges[random.below(i + 1)]);
  }
  return merges;
}

TEST(Bpe, FollowsTheDefinitionForShortAndLongWords) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Numbers random(seed);
    const Merges merges = random_merges(random);
    const Bpe bpe(merges, byte_tokens());
    for (std::size_t size = 1; size < 160; size += 7) {
      std::string word;
      for (std::size_t i = 0; i < size; ++i) {
        word.push_back("abc"[random.below(3)]);
      }
      EXPECT_EQ(encode(bpe, word), by_definition(merges, Tokens(word.begin(), word.end()))) << word;
    }
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
