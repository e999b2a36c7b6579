#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/definition.h"

namespace longtune {

/// Finds added tokens in text: of the matches that begin first the longest, then on from its end.
/// White space and word boundaries count as in Hugging Face's `tokenizers`, which this follows in
/// corner cases too: a match that is passed over (no single word, or special where special tokens
/// are text) still hides what lies inside it.
class AddedTokenMatcher {
 public:
  /// `tokens` are kept; `spellings` (one for each, possibly normalised) are what is looked for.
  /// Empty spellings match nothing.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& spellings);

  /// A part of the text: an added token, or (-1) text between.
  struct Part {
    std::string_view text;
    std::int32_t token = -1;
  };

  /// Appends the parts of `text`, which is valid UTF-8. Takes time in its bytes times the longest
  /// spelling.
  void split(std::string_view text, bool special_as_text, std::vector<Part>& parts) const;

  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  struct Match {
    std::size_t size = 0;
    std::int32_t index = -1;  // into tokens_; -1: none
  };

  struct Node {
    std::int32_t index = -1;  // the token that ends here
  };

  [[nodiscard]] Match longest_match(std::string_view text, std::size_t at) const;
  [[nodiscard]] std::int32_t child(std::int32_t node, char byte) const;
  void insert(std::string_view spelling, std::int32_t index);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                                // a trie; the root is node 0
  std::unordered_map<std::uint64_t, std::int32_t> edges_;  // node * 256 + byte -> node
  std::bitset<256> first_bytes_;
};

}  // namespace longtune
