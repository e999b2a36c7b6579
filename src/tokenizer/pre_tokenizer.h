#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/definition.h"

namespace longtune {

/// "gpt2", "llama3", "qwen2", "smollm".
[[nodiscard]] const char* name_of(PreTokenizerKind kind);

/// The kind whose published regex (as `tokenizer.json` spells it) is `regex`.
[[nodiscard]] std::optional<PreTokenizerKind> pre_tokenizer_of_regex(std::string_view regex);

/// The kind that `tokenizer.ggml.pre` names.
[[nodiscard]] std::optional<PreTokenizerKind> pre_tokenizer_of_gguf(std::string_view name);

/// Cuts text into words that no merge crosses, by one regular expression a kind. Immutable; any
/// number of Words may read it at once.
class PreTokenizer {
 public:
  explicit PreTokenizer(PreTokenizerKind kind);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  [[nodiscard]] PreTokenizerKind kind() const { return kind_; }

 private:
  friend class Words;
  struct Code;
  PreTokenizerKind kind_;
  std::unique_ptr<Code> code_;
};

/// Walks over the words of one text after another. Each byte of a text is in exactly one word.
class Words {
 public:
  explicit Words(const PreTokenizer& pre_tokenizer);
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  ~Words();

  /// Begins `text`, which is valid UTF-8 and outlives the walk.
  void start(std::string_view text);

  /// The next word; empty at the end of the text.
  [[nodiscard]] std::string_view next();

 private:
  struct Match;
  const PreTokenizer& pre_tokenizer_;
  std::unique_ptr<Match> match_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace longtune
