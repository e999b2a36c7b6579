#include "tokenizer/vocabulary.h"

#include "tokenizer/byte_alphabet.h"

namespace longtune {

Vocabulary::Vocabulary(const TokenizerDefinition& definition)
    : special_(definition.spellings.size()) {
  bytes_.reserve(definition.spellings.size());
  by_spelling_.reserve(definition.spellings.size());
  by_bytes_.reserve(definition.spellings.size());
  for (std::size_t i = 0; i < definition.spellings.size(); ++i) {
    const std::string& spelling = definition.spellings[i];
    const auto id = static_cast<std::int32_t>(i);
    const std::optional<std::string> bytes = spelled_bytes(spelling);
    bytes_.push_back(bytes.value_or(spelling));
    by_spelling_.try_emplace(spelling, id);
    if (definition.in_model[i] && bytes) {
      by_bytes_.try_emplace(*bytes, id);
    }
  }
  for (const AddedToken& token : definition.added) {
    bytes_[static_cast<std::size_t>(token.id)] = token.content;
    special_[static_cast<std::size_t>(token.id)] = token.special;
  }
}

std::optional<std::int32_t> Vocabulary::find_spelling(std::string_view spelling) const {
  const auto it = by_spelling_.find(spelling);
  return it == by_spelling_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<std::int32_t> Vocabulary::find_bytes(std::string_view bytes) const {
  const auto it = by_bytes_.find(bytes);
  return it == by_bytes_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace longtune
