#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longtune {

class Gguf;

/// Whether the spelling of a special token in a text stands for that token.
enum class SpecialTokens : std::uint8_t {
  kAsText,  ///< the default for data: "<|im_end|>" in a text is ten characters like any other
  kParse,   ///< as Hugging Face's tokenizers do: for prompts and chat templates
};

/// Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; GPT-2's byte alphabet).
/// Immutable after loading; every method may be called from any thread.
class Tokenizer {
 public:
  /// From `tokenizer.json` (with tokenizer_config.json beside it, where present) in a Hugging Face
  /// directory, or from the metadata of a `.gguf` file. Throws Error: kBadInput for malformed
  /// files and JSON of more than 64 MiB, naming file and thing; kUnsupported, by name, for what it
  /// does not understand; kIo.
  [[nodiscard]] static Tokenizer load(const std::filesystem::path& model);

  /// From the text of `tokenizer.json` and of `tokenizer_config.json` (empty where there is none),
  /// or from GGUF metadata; `source` is how messages call the file. Throws as `load` does.
  [[nodiscard]] static Tokenizer from_json(std::string_view tokenizer_json,
                                           std::string_view tokenizer_config,
                                           const std::string& source);
  [[nodiscard]] static Tokenizer from_gguf(const Gguf& gguf);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Token ids of UTF-8 text, without BOS or EOS. Invalid UTF-8 is read as the Hugging Face
  /// reference reads it: each maximal invalid part becomes U+FFFD. A byte among `missing_bytes()`
  /// becomes the model's unknown token or, where the model names none, nothing, as in the
  /// reference. Takes time n log n in the bytes at worst. Throws Error kInvalidArgument for a
  /// single word of 2^31 bytes.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 SpecialTokens special) const;

  /// Bytes of the tokens; may end inside a UTF-8 character. `skip_special` leaves special tokens
  /// out. Throws Error kInvalidArgument for an id that does not exist.
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& tokens,
                                   bool skip_special) const;

  /// Ids in [0, vocabulary_size()) exist, added tokens included.
  [[nodiscard]] std::int64_t vocabulary_size() const;

  /// The id of a token as the file spells it: "<|im_end|>", or "\u0120the" for " the".
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const;
  [[nodiscard]] std::optional<std::int32_t> bos_token() const;
  [[nodiscard]] std::optional<std::int32_t> eos_token() const;

  /// Whether documents begin with BOS (tokenizer_config's add_bos_token, a post-processor that adds
  /// it, or GGUF's add_bos_token).
  [[nodiscard]] bool adds_bos() const;

  /// Bytes that no token stands for, in rising order. SmolLM2 lacks 21: control characters and
  /// bytes of planes that hold no characters.
  [[nodiscard]] std::vector<std::uint8_t> missing_bytes() const;

  /// "gpt2", "llama3", "qwen2", "smollm"; for `inspect`.
  [[nodiscard]] const std::string& pre_tokenizer() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace longtune
