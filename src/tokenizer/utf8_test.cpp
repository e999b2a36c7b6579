#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

std::string repair(std::string_view text) {
  std::string storage;
  return std::string(repair_utf8(text, storage));
}

constexpr char kMark[] = "\xEF\xBF\xBD";  // U+FFFD

std::string marks(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += kMark;
  }
  return text;
}

TEST(Utf8, LeavesValidTextWhereItIs) {
  const std::string text = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80 \xF4\x8F\xBF\xBF";
  std::string storage;
  EXPECT_EQ(repair_utf8(text, storage).data(), text.data());
}

TEST(Utf8, ReplacesEachMaximalInvalidPart) {
  EXPECT_EQ(repair("a\xFF"), "a" + marks(1));
  EXPECT_EQ(repair("\x80\x80"), marks(2)) << "continuations alone";
  EXPECT_EQ(repair("\xC0\xAF"), marks(2)) << "no lead byte of an overlong form";
  EXPECT_EQ(repair("\xE0\x80\x80"), marks(3)) << "overlong: the second byte does not fit the lead";
  EXPECT_EQ(repair("\xED\xA0\x80"), marks(3)) << "a surrogate";
  EXPECT_EQ(repair("\xF4\x90\x80\x80"), marks(4)) << "beyond U+10FFFF";
  EXPECT_EQ(repair("\xF0\x9F\x98x"), marks(1) + "x") << "three bytes of four are one part";
  EXPECT_EQ(repair("\xE2\x82"), marks(1)) << "the text's end cuts a character";
  EXPECT_EQ(repair("\xE2\x82\xE2\x82\xAC"), marks(1) + "\xE2\x82\xAC");
}

TEST(Utf8, AppendsWhatItReads) {
  for (const char32_t c : {U'a', U'\u00E9', U'\u65E5', U'\U0001F600', U'\U0010FFFF'}) {
    std::string text;
    append_utf8(text, c);
    const Character read = read_utf8(text, 0);
    EXPECT_TRUE(read.valid);
    EXPECT_EQ(read.value, c);
    EXPECT_EQ(read.size, text.size());
    EXPECT_EQ(previous_character(text, text.size()), 0U);
  }
}

TEST(Utf8, KnowsWhiteSpaceAndWordCharacters) {
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00A0', U'\u2009', U'\u3000'}) {
    EXPECT_TRUE(is_white_space(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U'\u180E', U'\u200B', U'\uFEFF', U'a', U'\u001C'}) {
    EXPECT_FALSE(is_white_space(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U'a', U'7', U'_', U'\u0301', U'\u2167', U'\u200D', U'\u24B6'}) {
    EXPECT_TRUE(is_word_character(c)) << std::uint32_t{c};
  }
  for (const char32_t c : {U'-', U' ', U'\u00B2', U'\u2460', U'\U0001F600'}) {
    EXPECT_FALSE(is_word_character(c)) << std::uint32_t{c};
  }
}

}  // namespace
}  // namespace longtune
