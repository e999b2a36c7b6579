#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace longtune {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

constexpr char kWhere[] = "normalize_nfc";

/// Every character below U+0300, whose UTF-8 begins with 0xCC, is its own NFC and combines with no
/// earlier one.
bool surely_normal(std::string_view text) {
  return std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<std::uint8_t>(c) < 0xCC; });
}

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

CodePoints decompose(std::string_view text) {
  constexpr int kLongest = 32;  // canonical decompositions have at most 4 characters
  CodePoints result;
  result.reserve(text.size() + kLongest);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = read_utf8(text, at);
    const std::size_t used = result.size();
    result.resize(used + kLongest);
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value),
                                                           result.data() + used,
                                                           kLongest,
                                                           UTF8PROC_DECOMPOSE,
                                                           nullptr);
    if (count < 0 || count > kLongest) {
      fail(ErrorCode::kInternal, kWhere, "U+{:04X} does not decompose", std::uint32_t{c.value});
    }
    result.resize(used + static_cast<std::size_t>(count));
    at += c.size;
  }
  return result;
}

/// Canonical ordering. utf8proc's own takes quadratic time for long runs of marks.
void order_marks(CodePoints& text) {
  for (auto it = text.begin(); it != text.end();) {
    if (combining_class(*it) == 0) {
      ++it;
      continue;
    }
    const auto end = std::find_if(it, text.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(
        it, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    it = end;
  }
}

}  // namespace

std::string_view normalize_nfc(std::string_view text, std::string& storage) {
  if (surely_normal(text)) {
    return text;
  }
  CodePoints code_points = decompose(text);
  order_marks(code_points);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const utf8proc_ssize_t count = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
  if (count < 0) {
    fail(ErrorCode::kInternal, kWhere, "{}", utf8proc_errmsg(count));
  }
  storage.clear();
  storage.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(storage, static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]));
  }
  return storage;
}

}  // namespace longtune
