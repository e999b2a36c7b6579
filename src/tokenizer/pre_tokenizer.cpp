#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <limits>

#include "base/error.h"

namespace longtune {
namespace {

constexpr char kWhere[] = "pre_tokenizer";

// The regexes as tokenizer.json files spell them.
constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// SmolLM isolates each numeral first and cuts what is left as GPT-2 does. In one expression: a
// numeral is a word, and white space before a numeral counts as white space at an end.
constexpr std::string_view kSmolLmRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+)";

// \s is Unicode's White_Space to the reference; PCRE2's own also takes U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Letters and numbers of Unicode 15 and 16. PCRE2's tables end with Unicode 14 in some releases,
// and the reference's with 16; the words must not depend on that.
constexpr std::string_view kLaterLetters =
    R"(\x{1c89}\x{1c8a}\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{105c0}-\x{105f3}\x{10d4a}-\x{10d65})"
    R"(\x{10d6f}-\x{10d85}\x{10ec2}-\x{10ec4}\x{1123f}\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10})"
    R"(\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d})"
    R"(\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155}\x{1df25}-\x{1df2a}\x{1e030}-\x{1e06d})"
    R"(\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kLaterNumbers =
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})"
    R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";

std::string_view regex_of(PreTokenizerKind kind) {
  switch (kind) {
    case PreTokenizerKind::kGpt2:
      return kGpt2Regex;
    case PreTokenizerKind::kLlama3:
      return kLlama3Regex;
    case PreTokenizerKind::kQwen2:
      return kQwen2Regex;
    case PreTokenizerKind::kSmolLm:
      return kSmolLmRegex;
  }
  fail(ErrorCode::kInternal, kWhere, "kind {} does not exist", static_cast<int>(kind));
}

/// What stands for an escape of the published regexes, in brackets; empty: the escape itself.
std::string spelled_out(std::string_view regex, std::size_t at) {
  if (regex.substr(at, 2) == R"(\s)" || regex.substr(at, 2) == R"(\S)") {
    return std::string(kSpace);
  }
  if (regex.substr(at, 5) == R"(\p{L})") {
    return fmt::format(R"(\p{{L}}{})", kLaterLetters);
  }
  if (regex.substr(at, 5) == R"(\p{N})") {
    return fmt::format(R"(\p{{N}}{})", kLaterNumbers);
  }
  return {};
}

/// Spells out, inside and outside of brackets, what the reference and PCRE2 see differently.
std::string for_pcre2(std::string_view regex) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size();) {
    const std::string set = spelled_out(regex, i);
    if (!set.empty()) {
      const char* negation = regex[i + 1] == 'S' ? "^" : "";
      result += in_class ? set : fmt::format("[{}{}]", negation, set);
      i += regex[i + 1] == 'p' ? 5 : 2;
      continue;
    }
    in_class = regex[i] == '[' || (in_class && regex[i] != ']');
    result += regex.substr(i, regex[i] == '\\' ? 2 : 1);
    i += regex[i] == '\\' ? 2 : 1;
  }
  return result;
}

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

const char* name_of(PreTokenizerKind kind) {
  switch (kind) {
    case PreTokenizerKind::kGpt2:
      return "gpt2";
    case PreTokenizerKind::kLlama3:
      return "llama3";
    case PreTokenizerKind::kQwen2:
      return "qwen2";
    case PreTokenizerKind::kSmolLm:
      return "smollm";
  }
  return "unknown";
}

std::optional<PreTokenizerKind> pre_tokenizer_of_regex(std::string_view regex) {
  for (const auto kind :
       {PreTokenizerKind::kGpt2, PreTokenizerKind::kLlama3, PreTokenizerKind::kQwen2}) {
    if (regex == regex_of(kind)) {
      return kind;
    }
  }
  return std::nullopt;
}

std::optional<PreTokenizerKind> pre_tokenizer_of_gguf(std::string_view name) {
  if (name == "gpt-2") {
    return PreTokenizerKind::kGpt2;
  }
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") {
    return PreTokenizerKind::kLlama3;
  }
  if (name == "qwen2") {
    return PreTokenizerKind::kQwen2;
  }
  if (name == "smollm") {
    return PreTokenizerKind::kSmolLm;
  }
  return std::nullopt;
}

struct PreTokenizer::Code {
  pcre2_code* regex = nullptr;
  bool jit = false;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  ~Code() { pcre2_code_free(regex); }
};

PreTokenizer::PreTokenizer(PreTokenizerKind kind) : kind_(kind), code_(std::make_unique<Code>()) {
  const std::string pattern = for_pcre2(regex_of(kind));
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->regex = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                               pattern.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                               &error,
                               &offset,
                               nullptr);
  if (code_->regex == nullptr) {
    fail(ErrorCode::kInternal,
         kWhere,
         "the regex of {} does not compile at {}: {}",
         name_of(kind),
         offset,
         error_text(error));
  }
  // Without a just-in-time compiler the interpreter does the same, slower.
  code_->jit = pcre2_jit_compile(code_->regex, PCRE2_JIT_COMPLETE) == 0;
}

PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

struct Words::Match {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;

  Match() = default;
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  ~Match() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

Words::Words(const PreTokenizer& pre_tokenizer)
    : pre_tokenizer_(pre_tokenizer), match_(std::make_unique<Match>()) {
  match_->data = pcre2_match_data_create(1, nullptr);
  match_->context = pcre2_match_context_create(nullptr);
  if (match_->data == nullptr || match_->context == nullptr) {
    throw std::bad_alloc();
  }
  // The default limit on steps is for hostile regexes; ours take linear time.
  pcre2_set_match_limit(match_->context, std::numeric_limits<std::uint32_t>::max());
}

Words::~Words() = default;

void Words::start(std::string_view text) {
  text_ = text;
  at_ = 0;
}

std::string_view Words::next() {
  if (at_ == text_.size()) {
    return {};
  }
  const pcre2_code* regex = pre_tokenizer_.code_->regex;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  int count = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pre_tokenizer_.code_->jit) {
    count = pcre2_jit_match(regex, subject, text_.size(), at_, 0, match_->data, match_->context);
  }
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
    // No compiler, or a match too deep for its small stack: the interpreter keeps its own on the
    // heap.
    const std::uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT;
    count = pcre2_match(regex, subject, text_.size(), at_, options, match_->data, match_->context);
  }
  const std::size_t end = count > 0 ? pcre2_get_ovector_pointer(match_->data)[1] : at_;
  if (end <= at_) {
    fail(ErrorCode::kInternal,
         kWhere,
         "no word of {} begins at byte {}: {}",
         name_of(pre_tokenizer_.kind_),
         at_,
         count < 0 ? error_text(count) : "empty match");
  }
  const std::string_view word = text_.substr(at_, end - at_);
  at_ = end;
  return word;
}

}  // namespace longtune
