#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "train/documents.h"

namespace longtune {

/// The most tokens that any context may have.
constexpr std::int64_t kLongestContext = std::numeric_limits<std::int32_t>::max();

/// What a data set needs of a tokenizer.
struct TextEncoder {
  std::function<std::vector<std::int32_t>(std::string_view)> encode;
  std::optional<std::int32_t> bos;          ///< begins each document, where given
  std::int32_t eos = 0;                     ///< ends each document
  std::vector<std::uint8_t> missing_bytes;  ///< no token stands for them: encode drops them or
                                            ///< writes the unknown token
};

/// `tokenizer` as data is read with it: spellings of special tokens are text, BOS where
/// adds_bos(). It must outlive the result. Throws Error kUnsupported where it has no end-of-text
/// token (or asks for a BOS that it does not have).
[[nodiscard]] TextEncoder text_encoder(const Tokenizer& tokenizer);

/// What becomes of a document longer than the context.
enum class LongDocuments : std::uint8_t {
  kSplit,   ///< cut into runs of `context` tokens; a prompt with completion is refused, as later
            ///< runs would lose what they are conditioned on
  kDrop,    ///< left out and counted
  kRefuse,  ///< an error
};

struct DataOptions {
  DocumentOptions documents;
  std::int64_t context = 0;  ///< most tokens a sample may have, 2 .. kLongestContext
  LongDocuments long_documents = LongDocuments::kSplit;
};

/// What was read, and what became of it; nothing is left out without being counted here.
struct DataSummary {
  std::int64_t documents = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;             ///< of all samples, BOS and EOS included
  std::int64_t targets = 0;            ///< of all samples
  std::int64_t split_documents = 0;    ///< longer than the context, cut into runs
  std::int64_t dropped_documents = 0;  ///< longer than the context, left out
  std::int64_t dropped_tokens = 0;     ///< of those
  std::int64_t lone_tokens = 0;        ///< last runs of one token, which has no target: left out
  std::int64_t invalid_bytes = 0;      ///< outside of any UTF-8 character, read as U+FFFD
  std::int64_t missing_bytes = 0;      ///< for which the tokenizer has no token
};

/// Bytes of prompt and text, of valid characters, for which the tokenizer has no token.
[[nodiscard]] std::int64_t count_missing_bytes(const Document& document,
                                               const TextEncoder& encoder);

/// "; 3 bytes not UTF-8, read as U+FFFD; 1 byte that no token stands for": what is zero is not
/// mentioned.
[[nodiscard]] std::string describe_bytes(std::int64_t invalid, std::int64_t missing);

/// "6 documents, 480 samples, 983,040 tokens; 6 split"; what is zero is not mentioned.
[[nodiscard]] std::string describe(const DataSummary& summary);

/// A run of consecutive tokens of one document. The target of a token is the next token of the
/// run, where that is to be learnt: any in plain text, completion and end-of-text after a prompt.
/// The last token of a run has no target, also where the document goes on (as where labels are the
/// run itself, shifted), so no token is a target twice, and only a run's first never is.
struct Sample {
  std::span<const std::int32_t> tokens;
  std::int64_t first_target = 1;  ///< index of the first token that is a target
  std::int64_t document = 0;      ///< counted from 0 over the whole data set
  std::int64_t first_token = 0;   ///< where the run begins in its document

  [[nodiscard]] std::int64_t target_count() const {
    return static_cast<std::int64_t>(tokens.size()) - first_target;
  }

  /// Writes tokens.size() targets, ops::kNoTarget where there is none.
  void write_targets(std::span<std::int32_t> targets) const;
};

/// All samples of a data set, tokenised, in host memory: 4 bytes a token and a record a sample.
///
/// A document is BOS (where the tokenizer asks for it), its text, and EOS, which is a target like
/// any other. Prompt and completion are encoded apart, as they are when a prompt is completed. The
/// spelling of a special token in a text is text.
class Dataset {
 public:
  /// Throws Error: kInvalidArgument for a context outside its range; kBadInput, naming file and
  /// line, for a document that is too long where that is refused, a sample without any target, a
  /// data set without samples, and what read_documents refuses; kIo where the system refuses.
  [[nodiscard]] static Dataset load(const DataOptions& options, const TextEncoder& encoder);

  /// `samples` runs of `context` random tokens below `vocabulary`, for benchmarks.
  [[nodiscard]] static Dataset random(std::int64_t samples,
                                      std::int64_t context,
                                      std::int64_t vocabulary);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }

  /// Sample `index` in the order of the files. Valid while the data set lives.
  [[nodiscard]] Sample sample(std::int64_t index) const;

  [[nodiscard]] const DataSummary& summary() const { return summary_; }

  [[nodiscard]] std::int64_t longest_sample() const { return longest_; }

  /// A hash of all tokens and runs: a resumed run checks that it reads the same data.
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }

  /// Memory held.
  [[nodiscard]] std::int64_t host_bytes() const;

 private:
  struct Record {
    std::int64_t offset = 0;  ///< in tokens_
    std::int64_t document = 0;
    std::int64_t first_token = 0;
    std::int32_t length = 0;
    std::int32_t first_target = 1;
  };

  Dataset() = default;
  void add(const Document& document, const DataOptions& options, const TextEncoder& encoder);
  void add_runs(std::span<const std::int32_t> tokens, std::int64_t prompt, std::int64_t context);
  void finish(const DataOptions& options);

  std::vector<std::int32_t> tokens_;
  std::vector<Record> records_;
  DataSummary summary_;
  std::int64_t longest_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace longtune
