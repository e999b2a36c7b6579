#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longtune {

class Gguf;

/// How text is cut into words before any merge, named after the family that introduced it.
enum class PreTokenizerKind : std::uint8_t { kGpt2, kLlama3, kQwen2, kSmolLm };

/// A token that is looked for in the text itself, before pre-tokenisation. The flags mean what they
/// mean in Hugging Face's `tokenizers`.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      ///< left out by decode(skip_special), and text under kAsText
  bool lstrip = false;       ///< takes the white space on its left along
  bool rstrip = false;       ///< takes the white space on its right along
  bool single_word = false;  ///< does not match where a word character touches it
  bool normalized = false;   ///< is looked for, normalised, in the normalised text
};

/// Everything a file says about its tokenizer, whatever the file's format.
struct TokenizerDefinition {
  std::string source;  ///< the file's name, for messages

  /// Spellings by id, in GPT-2's byte alphabet except for added tokens.
  std::vector<std::string> spellings;
  /// Whether a spelling is a token of the BPE model (added tokens may be both).
  std::vector<bool> in_model;

  /// Merges by rank. Ids of left and right token, and of what they become.
  struct Merge {
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::int32_t merged = 0;
  };

  std::vector<Merge> merges;
  std::vector<AddedToken> added;

  PreTokenizerKind pre_tokenizer = PreTokenizerKind::kGpt2;
  bool nfc = false;            ///< the text is normalised to NFC first
  bool ignore_merges = false;  ///< a word that is a token is that token, whatever the merges say
  std::optional<std::int32_t> unknown;  ///< stands for bytes without a symbol; without it they go
  bool fuse_unknown = false;            ///< a run of such bytes gives one unknown token

  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  bool adds_bos = false;
};

/// From the text of `tokenizer.json` and of `tokenizer_config.json` (empty where there is none).
/// Throws Error: kBadInput for what is malformed, kUnsupported for what is not byte-level BPE as
/// described in pre_tokenizer.h; both name `source`, the thing and the value.
[[nodiscard]] TokenizerDefinition parse_tokenizer_json(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config,
                                                       const std::string& source);

/// From `tokenizer.ggml.*`. Throws as `parse_tokenizer_json` does. What GGUF does not record
/// follows the family that `tokenizer.ggml.pre` names: Qwen2 normalises to NFC; Llama 3 ignores
/// merges for words that are tokens, and begins documents with BOS unless the file says otherwise.
[[nodiscard]] TokenizerDefinition parse_tokenizer_gguf(const Gguf& gguf);

}  // namespace longtune
