#include "base/error.h"
#include "base/text.h"
#include "io/gguf.h"
#include "tokenizer/definition.h"
#include "tokenizer/definition_builder.h"
#include "tokenizer/pre_tokenizer.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "tokenizer";

// tokenizer.ggml.token_type, as llama.cpp numbers them.
enum class TokenType : std::int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

std::string required_string(const Gguf& gguf, const char* key) {
  const std::optional<std::string_view> value = gguf.string(key);
  if (!value) {
    fail(ErrorCode::kBadInput, kWhere, "{}: {} is missing", gguf.file(), key);
  }
  return std::string(*value);
}

const GgufValue& required_strings(const Gguf& gguf, const char* key) {
  const GgufValue* value = gguf.strings(key);
  if (value == nullptr) {
    fail(ErrorCode::kBadInput, kWhere, "{}: {} is missing", gguf.file(), key);
  }
  return *value;
}

void add_token(std::string spelling,
               std::int32_t id,
               std::int64_t type,
               DefinitionBuilder& builder) {
  switch (static_cast<TokenType>(type)) {
    case TokenType::kNormal:
      builder.add_model_token(std::move(spelling), id);
      return;
    case TokenType::kUnused:
      builder.add_unused_token(std::move(spelling), id);
      return;
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined: {
      AddedToken token;
      token.content = std::move(spelling);
      token.id = id;
      token.special = type != static_cast<std::int64_t>(TokenType::kUserDefined);
      builder.add_added_token(std::move(token));
      return;
    }
    case TokenType::kByte:
      break;
  }
  fail(ErrorCode::kUnsupported,
       kWhere,
       "{}: token {} {} has token_type {}, which byte-level BPE does not know",
       builder.definition().source,
       id,
       in_quotes(spelling),
       type);
}

void parse_tokens(const Gguf& gguf, const GgufValue& tokens, DefinitionBuilder& builder) {
  const GgufValue* types = gguf.integers("tokenizer.ggml.token_type");
  if (types != nullptr && types->size() != tokens.size()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: tokenizer.ggml.token_type has {} entries for {} tokens",
         gguf.file(),
         types->size(),
         tokens.size());
  }
  for (std::int64_t id = 0; id < tokens.size(); ++id) {
    const auto normal = static_cast<std::int64_t>(TokenType::kNormal);
    const std::int64_t type = types == nullptr ? normal : types->integer(id).value_or(0);
    std::string spelling(tokens.string(id).value_or(""));
    if (spelling.empty() && type != static_cast<std::int64_t>(TokenType::kUnused)) {
      fail(ErrorCode::kBadInput, kWhere, "{}: token {} is empty", gguf.file(), id);
    }
    add_token(std::move(spelling), static_cast<std::int32_t>(id), type, builder);
  }
}

std::optional<std::int32_t> token_under(const Gguf& gguf, const char* key, std::int64_t count) {
  const std::optional<std::int64_t> id = gguf.integer(key);
  if (id && (*id < 0 || *id >= count)) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: {} is {}, outside of the vocabulary of {}",
         gguf.file(),
         key,
         *id,
         count);
  }
  return id ? std::optional(static_cast<std::int32_t>(*id)) : std::nullopt;
}

void parse_family(const Gguf& gguf, TokenizerDefinition& definition) {
  const std::string model = required_string(gguf, "tokenizer.ggml.model");
  if (model != "gpt2") {
    fail(ErrorCode::kUnsupported,
         kWhere,
         "{}: tokenizer.ggml.model {} is not supported, only gpt2 (byte-level BPE) is",
         gguf.file(),
         in_quotes(model));
  }
  const std::string pre = required_string(gguf, "tokenizer.ggml.pre");
  const std::optional<PreTokenizerKind> kind = pre_tokenizer_of_gguf(pre);
  if (!kind) {
    fail(ErrorCode::kUnsupported,
         kWhere,
         "{}: tokenizer.ggml.pre {} is not supported, only gpt-2, llama-bpe, qwen2 and smollm are",
         gguf.file(),
         in_quotes(pre));
  }
  definition.pre_tokenizer = *kind;
  definition.nfc = *kind == PreTokenizerKind::kQwen2;
  definition.ignore_merges = *kind == PreTokenizerKind::kLlama3;
}

void parse_ends(const Gguf& gguf, TokenizerDefinition& definition) {
  const auto count = static_cast<std::int64_t>(definition.spellings.size());
  definition.bos = token_under(gguf, "tokenizer.ggml.bos_token_id", count);
  definition.eos = token_under(gguf, "tokenizer.ggml.eos_token_id", count);
  const bool usual = definition.pre_tokenizer == PreTokenizerKind::kLlama3;
  definition.adds_bos = gguf.boolean("tokenizer.ggml.add_bos_token").value_or(usual);
  if (definition.adds_bos && !definition.bos) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: texts are to begin with a BOS token, but tokenizer.ggml.bos_token_id is missing",
         gguf.file());
  }
}

}  // namespace

TokenizerDefinition parse_tokenizer_gguf(const Gguf& gguf) {
  TokenizerDefinition family;
  parse_family(gguf, family);
  const GgufValue& tokens = required_strings(gguf, "tokenizer.ggml.tokens");
  DefinitionBuilder builder(gguf.file(), static_cast<std::size_t>(tokens.size()));
  TokenizerDefinition& definition = builder.definition();
  definition.pre_tokenizer = family.pre_tokenizer;
  definition.nfc = family.nfc;
  definition.ignore_merges = family.ignore_merges;
  parse_tokens(gguf, tokens, builder);
  const GgufValue& merges = required_strings(gguf, "tokenizer.ggml.merges");
  for (std::int64_t i = 0; i < merges.size(); ++i) {
    builder.add_merge(merges.string(i).value_or(""));
  }
  parse_ends(gguf, definition);
  return builder.finish();
}

}  // namespace longtune
