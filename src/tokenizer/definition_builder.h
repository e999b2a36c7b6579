#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "tokenizer/definition.h"

namespace longtune {

/// Puts a definition together, and checks that its parts agree: each id has one spelling and each
/// spelling one id, ids have no gaps, merges are made of tokens and make tokens. All throw Error
/// kBadInput naming the file and what disagrees.
class DefinitionBuilder {
 public:
  /// `capacity`: how many ids there can be; bounds what a wild id in a file may allocate.
  DefinitionBuilder(std::string source, std::size_t capacity);

  [[nodiscard]] TokenizerDefinition& definition() { return definition_; }

  /// A token of the BPE model.
  void add_model_token(std::string spelling, std::int32_t id);

  /// A token by id alone: it has a spelling to show, but no text becomes it.
  void add_unused_token(std::string spelling, std::int32_t id);

  /// An added token; one of the model's may be added as well, under its id, and one already added
  /// may be added again, with other flags.
  void add_added_token(AddedToken token);

  /// The next merge; `left` and `right` are spellings.
  void add_merge(std::string_view left, std::string_view right);

  /// "left right", as merges.txt has them.
  void add_merge(std::string_view line);

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view spelling) const;

  /// The finished definition.
  [[nodiscard]] TokenizerDefinition finish();

 private:
  void claim(const std::string& spelling, std::int32_t id);
  [[nodiscard]] std::int32_t merge_part(std::string_view spelling) const;

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  TokenizerDefinition definition_;
  std::vector<bool> taken_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int32_t, std::size_t> places_;  // id -> index in definition_.added
};

}  // namespace longtune
