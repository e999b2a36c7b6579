#include "tokenizer/normalize.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(normalize_nfc(text, storage));
}

constexpr char kAcute[] = "\xCC\x81";     // U+0301, class 230
constexpr char kGraveLow[] = "\xCC\x96";  // U+0316, class 220

TEST(NormalizeNfc, Composes) {
  EXPECT_EQ(nfc(std::string("e") + kAcute), "\xC3\xA9");
  EXPECT_EQ(nfc("\xE2\x84\xAB"), "\xC3\x85") << "the angstrom sign is a letter";
  EXPECT_EQ(nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), "\xED\x95\x9C") << "Hangul";
  EXPECT_EQ(nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC") << "excluded from composition";
}

TEST(NormalizeNfc, OrdersMarks) {
  const std::string ordered = std::string("x") + kGraveLow + kAcute;
  EXPECT_EQ(nfc(std::string("x") + kAcute + kGraveLow), ordered);
  EXPECT_EQ(nfc(ordered), ordered);
}

TEST(NormalizeNfc, LeavesPlainTextWhereItIs) {
  const std::string text = "na\xC3\xAFve \xC5\x93uvre\n";
  std::string storage;
  EXPECT_EQ(normalize_nfc(text, storage).data(), text.data());
}

// A gnome sort, as in utf8proc, would take 10^10 steps.
TEST(NormalizeNfc, OrdersLongRunsOfMarksInTime) {
  std::string text;
  std::string low;
  std::string high;
  for (int i = 0; i < 100'000; ++i) {
    text += kAcute;
    text += kGraveLow;
    high += kAcute;
    low += kGraveLow;
  }
  EXPECT_TRUE(nfc(text) == low + high);
}

}  // namespace
}  // namespace longtune
