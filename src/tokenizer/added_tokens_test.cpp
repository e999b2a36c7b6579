#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

AddedToken token(const std::string& content, std::int32_t id) {
  AddedToken result;
  result.content = content;
  result.id = id;
  return result;
}

/// Parts as "text" or "<id:text>".
std::string split(const std::vector<AddedToken>& tokens,
                  std::string_view text,
                  bool special_as_text = false) {
  std::vector<std::string> spellings;
  for (const AddedToken& t : tokens) {
    spellings.push_back(t.content);
  }
  std::vector<AddedTokenMatcher::Part> parts;
  AddedTokenMatcher(tokens, spellings).split(text, special_as_text, parts);
  std::string result;
  for (const auto& part : parts) {
    result += part.token < 0
                  ? "[" + std::string(part.text) + "]"
                  : "<" + std::to_string(part.token) + ":" + std::string(part.text) + ">";
  }
  return result;
}

TEST(AddedTokens, PrefersTheLeftmostThenTheLongest) {
  const std::vector<AddedToken> tokens{token("ab", 1), token("abcd", 2), token("bc", 3)};
  EXPECT_EQ(split(tokens, "xabcdy"), "[x]<2:abcd>[y]");
  EXPECT_EQ(split(tokens, "abc"), "<1:ab>[c]");
  EXPECT_EQ(split(tokens, "bcab"), "<3:bc><1:ab>");
  EXPECT_EQ(split(tokens, "none"), "[none]");
  EXPECT_EQ(split(tokens, ""), "");
  EXPECT_EQ(split({}, "ab"), "[ab]");
}

TEST(AddedTokens, TakesWhiteSpaceAlong) {
  AddedToken left = token("<l>", 1);
  left.lstrip = true;
  AddedToken right = token("<r>", 2);
  right.rstrip = true;
  EXPECT_EQ(split({left, right}, "a \xE3\x80\x80<l> b"), "[a]<1: \xE3\x80\x80<l>>[ b]");
  EXPECT_EQ(split({left, right}, "a <r>\n b"), "[a ]<2:<r>\n >[b]");
  EXPECT_EQ(split({left, right}, "<r> <l>"), "<2:<r> ><1:<l>>") << "once taken, not taken again";
}

TEST(AddedTokens, KeepsToSingleWords) {
  AddedToken word = token("ny", 1);
  word.single_word = true;
  EXPECT_EQ(split({word}, "ny ony nya -ny- ny"), "<1:ny>[ ony nya -]<1:ny>[- ]<1:ny>");
  EXPECT_EQ(split({word}, "\xC3\xA9ny"), "[\xC3\xA9ny]") << "a letter beyond ASCII touches it";
}

TEST(AddedTokens, LeavesSpecialTokensAsText) {
  AddedToken special = token("<|end|>", 1);
  special.special = true;
  const std::vector<AddedToken> tokens{special, token("end", 2)};
  EXPECT_EQ(split(tokens, "end<|end|>end"), "<2:end><1:<|end|>><2:end>");
  EXPECT_EQ(split(tokens, "end<|end|>end", true), "<2:end>[<|end|>]<2:end>")
      << "what lies inside of it stays hidden";
}

}  // namespace
}  // namespace longtune
