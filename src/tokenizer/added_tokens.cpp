#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace longtune {
namespace {

std::uint64_t edge(std::int32_t node, char byte) {
  return static_cast<std::uint64_t>(node) * 256 + static_cast<std::uint8_t>(byte);
}

bool ends_with_word_character(std::string_view text) {
  return !text.empty() &&
         is_word_character(read_utf8(text, previous_character(text, text.size())).value);
}

bool starts_with_word_character(std::string_view text) {
  return !text.empty() && is_word_character(read_utf8(text, 0).value);
}

/// Where the white space at the end of `text` begins.
std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t start = previous_character(text, end);
    if (!is_white_space(read_utf8(text, start).value)) {
      break;
    }
    end = start;
  }
  return end;
}

/// How many bytes of white space `text` begins with.
std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Character c = read_utf8(text, at);
    if (!is_white_space(c.value)) {
      break;
    }
    at += c.size;
  }
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens,
                                     const std::vector<std::string>& spellings)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < spellings.size(); ++i) {
    if (!spellings[i].empty()) {
      insert(spellings[i], static_cast<std::int32_t>(i));
    }
  }
}

void AddedTokenMatcher::insert(std::string_view spelling, std::int32_t index) {
  first_bytes_.set(static_cast<std::uint8_t>(spelling.front()));
  std::int32_t node = 0;
  for (const char byte : spelling) {
    const auto [it, is_new] =
        edges_.try_emplace(edge(node, byte), static_cast<std::int32_t>(nodes_.size()));
    if (is_new) {
      nodes_.emplace_back();
    }
    node = it->second;
  }
  // Two tokens may share a normalised spelling: the first one has it.
  auto& end = nodes_[static_cast<std::size_t>(node)];
  if (end.index < 0) {
    end.index = index;
  }
}

std::int32_t AddedTokenMatcher::child(std::int32_t node, char byte) const {
  const auto it = edges_.find(edge(node, byte));
  return it == edges_.end() ? -1 : it->second;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_match(std::string_view text,
                                                          std::size_t at) const {
  Match best;
  std::int32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) {
      break;
    }
    if (const std::int32_t index = nodes_[static_cast<std::size_t>(node)].index; index >= 0) {
      best = {i + 1 - at, index};
    }
  }
  return best;
}

void AddedTokenMatcher::split(std::string_view text,
                              bool special_as_text,
                              std::vector<Part>& parts) const {
  std::size_t done = 0;  // the text before it is in `parts`
  std::size_t at = 0;
  while (at < text.size()) {
    const Match match =
        first_bytes_.test(static_cast<std::uint8_t>(text[at])) ? longest_match(text, at) : Match{};
    if (match.index < 0) {
      ++at;
      continue;
    }
    std::size_t start = at;
    std::size_t end = at + match.size;
    at = end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.index)];
    if (token.special && special_as_text) {
      continue;
    }
    if (token.single_word && (ends_with_word_character(text.substr(0, start)) ||
                              starts_with_word_character(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      start = std::max(trailing_space(text.substr(0, start)), done);
    }
    if (token.rstrip) {
      end += leading_space(text.substr(end));
    }
    if (done < start) {
      parts.push_back({text.substr(done, start - done), -1});
    }
    parts.push_back({text.substr(start, end - start), token.id});
    done = end;
  }
  if (done < text.size()) {
    parts.push_back({text.substr(done), -1});
  }
}

}  // namespace longtune
