#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longtune {

/// Whether the spelling of a special token in a text stands for that token.
enum class SpecialTokens : std::uint8_t {
  kAsText,  ///< the default for data: "<|im_end|>" in a text is eleven-odd characters like any
            ///< other
  kParse,   ///< as Hugging Face's tokenizers do: for prompts and chat templates
};

/// Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909; GPT-2's byte alphabet).
/// Immutable after loading; every method may be called from any thread.
class Tokenizer {
 public:
  /// From `tokenizer.json` (with tokenizer_config.json beside it, where present) in a Hugging Face
  /// directory, or from the metadata of a `.gguf` file. Throws Error: kBadInput for malformed
  /// files, naming file and thing; kUnsupported, by name, for what it does not understand; kIo.
  [[nodiscard]] static Tokenizer load(const std::filesystem::path& model);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Token ids of UTF-8 text, without BOS or EOS. Invalid UTF-8 is read as the Hugging Face
  /// reference reads it: each maximal invalid part becomes U+FFFD.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 SpecialTokens special) const;

  /// Bytes of the tokens; may end inside a UTF-8 character. `skip_special` leaves special tokens
  /// out.
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& tokens,
                                   bool skip_special) const;

  /// Ids in [0, vocabulary_size()) exist, added tokens included.
  [[nodiscard]] std::int64_t vocabulary_size() const;
  [[nodiscard]] std::optional<std::int32_t> token_id(std::string_view token) const;
  [[nodiscard]] std::optional<std::int32_t> bos_token() const;
  [[nodiscard]] std::optional<std::int32_t> eos_token() const;

  /// Whether documents begin with BOS (tokenizer_config's add_bos_token, a post-processor that adds
  /// it, or GGUF's add_bos_token).
  [[nodiscard]] bool adds_bos() const;

  /// "gpt2", "llama3", "qwen2", "smollm"; for `inspect`.
  [[nodiscard]] const std::string& pre_tokenizer() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longtune
