#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/definition.h"

namespace longtune {

/// The tokens of a definition by id, by spelling and by the bytes they stand for.
class Vocabulary {
 public:
  explicit Vocabulary(const TokenizerDefinition& definition);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

  /// What a token stands for; `id` in [0, size()). Added tokens stand for their content; a spelling
  /// outside of the byte alphabet for itself, as in the reference.
  [[nodiscard]] const std::string& bytes(std::int32_t id) const {
    return bytes_[static_cast<std::size_t>(id)];
  }

  [[nodiscard]] bool is_special(std::int32_t id) const {
    return special_[static_cast<std::size_t>(id)];
  }

  /// The id of a token as the file spells it.
  [[nodiscard]] std::optional<std::int32_t> find_spelling(std::string_view spelling) const;

  /// The token of the BPE model that stands for exactly these bytes.
  [[nodiscard]] std::optional<std::int32_t> find_bytes(std::string_view bytes) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  using Index = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;

  std::vector<std::string> bytes_;
  std::vector<bool> special_;
  Index by_spelling_;
  Index by_bytes_;
};

}  // namespace longtune
