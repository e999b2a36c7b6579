#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <bit>
#include <deque>

#include "base/error.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/reader.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/definition.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "tokenizer";

Bpe make_bpe(const TokenizerDefinition& definition, const Vocabulary& vocabulary) {
  Bpe::Options options;
  options.unknown = definition.unknown;
  options.fuse_unknown = definition.fuse_unknown;
  for (std::size_t byte = 0; byte < options.byte_symbols.size(); ++byte) {
    const std::string one(1, static_cast<char>(byte));
    options.byte_symbols[byte] = vocabulary.find_bytes(one).value_or(-1);
  }
  return {definition.merges, options};
}

/// Matches the added tokens whose `normalized` is `normalized`.
AddedTokenMatcher make_matcher(const TokenizerDefinition& definition, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> spellings;
  for (const AddedToken& token : definition.added) {
    if (token.normalized == normalized) {
      std::string storage;
      tokens.push_back(token);
      spellings.emplace_back(normalized && definition.nfc ? normalize_nfc(token.content, storage)
                                                          : std::string_view(token.content));
    }
  }
  return {std::move(tokens), spellings};
}

/// Words seen in this call and where their tokens stand in the result: one slot for each hash, so
/// that its size is bounded, and no words are copied.
class WordCache {
 public:
  explicit WordCache(std::size_t text_size)
      : slots_(std::bit_ceil(std::clamp<std::size_t>(text_size / 8, 16, kMostSlots))) {}

  struct Slot {
    std::string_view word;
    std::size_t first = 0;  // the word's tokens in the result
    std::size_t count = 0;
  };

  Slot& slot(std::string_view word) {
    return slots_[std::hash<std::string_view>{}(word) & (slots_.size() - 1)];
  }

 private:
  static constexpr std::size_t kMostSlots = std::size_t{1} << 14;
  std::vector<Slot> slots_;
};

/// The text of the configuration beside tokenizer.json, empty where there is none; a link that
/// leads nowhere is an error, as is an empty file.
std::string read_config(const std::filesystem::path& path) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(path, error).type();
  if (type == std::filesystem::file_type::not_found) {
    return "";
  }
  if (type == std::filesystem::file_type::symlink && !std::filesystem::exists(path, error)) {
    const std::string reason = error ? error.message() : "the link leads nowhere";
    fail(ErrorCode::kIo, kWhere, "cannot open {}: {}", path.string(), reason);
  }
  std::string text = read_whole(path, kLargestJson);
  if (text.empty()) {
    fail(ErrorCode::kBadInput, kWhere, "{}: is empty", path.string());
  }
  return text;
}

}  // namespace

struct Tokenizer::State {
  explicit State(const TokenizerDefinition& definition)
      : vocabulary(definition),
        bpe(make_bpe(definition, vocabulary)),
        pre_tokenizer(definition.pre_tokenizer),
        raw_tokens(make_matcher(definition, false)),
        normalized_tokens(make_matcher(definition, true)),
        nfc(definition.nfc),
        ignore_merges(definition.ignore_merges),
        adds_bos(definition.adds_bos),
        bos(definition.bos),
        eos(definition.eos),
        pre_tokenizer_name(name_of(definition.pre_tokenizer)) {}

  Vocabulary vocabulary;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  AddedTokenMatcher raw_tokens;
  AddedTokenMatcher normalized_tokens;
  bool nfc;
  bool ignore_merges;
  bool adds_bos;
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  std::string pre_tokenizer_name;

  class Encoding;
};

/// One call of `encode`.
class Tokenizer::State::Encoding {
 public:
  Encoding(const State& state, std::string_view text, SpecialTokens special)
      : state_(state),
        special_as_text_(special == SpecialTokens::kAsText),
        words_(state.pre_tokenizer),
        cache_(text.size()) {
    tokens_.reserve(text.size() / 4 + 4);
    std::vector<AddedTokenMatcher::Part> parts;
    state.raw_tokens.split(text, special_as_text_, parts);
    for (const auto& part : parts) {
      if (part.token >= 0) {
        tokens_.push_back(part.token);
      } else {
        encode_raw(part.text);
      }
    }
  }

  std::vector<std::int32_t> take() { return std::move(tokens_); }

 private:
  /// Text without raw added tokens.
  void encode_raw(std::string_view text) {
    if (state_.nfc) {
      std::string storage;
      text = normalize_nfc(text, storage);
      if (text.data() == storage.data()) {
        text = normalized_.emplace_back(std::move(storage));
      }
    }
    if (state_.normalized_tokens.empty()) {
      encode_plain(text);
      return;
    }
    std::vector<AddedTokenMatcher::Part> parts;
    state_.normalized_tokens.split(text, special_as_text_, parts);
    for (const auto& part : parts) {
      if (part.token >= 0) {
        tokens_.push_back(part.token);
      } else {
        encode_plain(part.text);
      }
    }
  }

  void encode_plain(std::string_view text) {
    words_.start(text);
    for (std::string_view word = words_.next(); !word.empty(); word = words_.next()) {
      encode_word(word);
    }
  }

  void encode_word(std::string_view word) {
    WordCache::Slot& slot = cache_.slot(word);
    if (slot.word == word) {
      const std::size_t before = tokens_.size();
      tokens_.resize(before + slot.count);
      std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(slot.first),
                  slot.count,
                  tokens_.begin() + static_cast<std::ptrdiff_t>(before));
      return;
    }
    const std::size_t first = tokens_.size();
    const auto whole = state_.ignore_merges ? state_.vocabulary.find_bytes(word) : std::nullopt;
    if (whole) {
      tokens_.push_back(*whole);
    } else {
      state_.bpe.encode(word, scratch_, tokens_);
    }
    slot = {word, first, tokens_.size() - first};
  }

  const State& state_;
  bool special_as_text_;
  Words words_;
  WordCache cache_;
  std::deque<std::string> normalized_;  // texts that the cache's words point into
  Bpe::Scratch scratch_;
  std::vector<std::int32_t> tokens_;
};

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& model) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(model, ignored)) {
    if (model.extension() != ".gguf") {
      fail(ErrorCode::kBadInput,
           kWhere,
           "{}: neither a directory with tokenizer.json nor a .gguf file",
           model.string());
    }
    return from_gguf(Gguf::parse(File(model)));
  }
  const std::filesystem::path file = model / "tokenizer.json";
  return from_json(
      read_whole(file, kLargestJson), read_config(model / "tokenizer_config.json"), file.string());
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json,
                               std::string_view tokenizer_config,
                               const std::string& source) {
  return Tokenizer(std::make_unique<const State>(
      parse_tokenizer_json(tokenizer_json, tokenizer_config, source)));
}

Tokenizer Tokenizer::from_gguf(const Gguf& gguf) {
  return Tokenizer(std::make_unique<const State>(parse_tokenizer_gguf(gguf)));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::string storage;
  const std::string_view valid = repair_utf8(text, storage);
  return State::Encoding(*state_, valid, special).take();
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens, bool skip_special) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= vocabulary_size()) {
      fail(ErrorCode::kInvalidArgument,
           kWhere,
           "token {} is outside of the vocabulary of {}",
           token,
           vocabulary_size());
    }
    if (!skip_special || !state_->vocabulary.is_special(token)) {
      text += state_->vocabulary.bytes(token);
    }
  }
  return text;
}

std::int64_t Tokenizer::vocabulary_size() const {
  return state_->vocabulary.size();
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  return state_->vocabulary.find_spelling(token);
}

std::optional<std::int32_t> Tokenizer::bos_token() const {
  return state_->bos;
}

std::optional<std::int32_t> Tokenizer::eos_token() const {
  return state_->eos;
}

bool Tokenizer::adds_bos() const {
  return state_->adds_bos;
}

std::vector<std::uint8_t> Tokenizer::missing_bytes() const {
  return state_->bpe.missing_bytes();
}

const std::string& Tokenizer::pre_tokenizer() const {
  return state_->pre_tokenizer_name;
}

}  // namespace longtune
