#include "train/data.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random.h"
#include "ops/head_loss.h"
#include "train/utf8.h"

namespace longtune {
namespace {

constexpr const char* kWhere = "data";

/// BOS and text (or prompt), then completion, then EOS.
struct EncodedDocument {
  std::vector<std::int32_t> tokens;
  std::int64_t prompt = 0;  ///< tokens that are not to be learnt
};

[[nodiscard]] EncodedDocument encode(const Document& document, const TextEncoder& encoder) {
  EncodedDocument result;
  const auto append = [&](std::string_view text) {
    const std::vector<std::int32_t> more = encoder.encode(text);
    result.tokens.insert(result.tokens.end(), more.begin(), more.end());
  };
  if (encoder.bos) {
    result.tokens.push_back(*encoder.bos);
  }
  if (document.prompt) {
    append(*document.prompt);
    result.prompt = static_cast<std::int64_t>(result.tokens.size());
  }
  append(document.text);
  result.tokens.push_back(encoder.eos);
  return result;
}

[[noreturn]] void refuse_long(const Document& document, std::size_t tokens, std::int64_t context) {
  fail(ErrorCode::kBadInput,
       kWhere,
       "{} has {} tokens, more than the context of {}; {}",
       location_of(document),
       tokens,
       context,
       document.prompt
           ? "a completion cannot be cut from its prompt: raise the context or drop long documents"
           : "raise the context, or split or drop long documents");
}

/// "1,234,567".
[[nodiscard]] std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

[[nodiscard]] std::string counted(std::int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(number), noun, number == 1 ? "" : "s");
}

}  // namespace

std::string describe(const DataSummary& summary) {
  std::string text = fmt::format("{}, {}, {}",
                                 counted(summary.documents, "document"),
                                 counted(summary.samples, "sample"),
                                 counted(summary.tokens, "token"));
  if (summary.split_documents > 0) {
    text += fmt::format("; {} split", counted(summary.split_documents, "document"));
  }
  if (summary.dropped_documents > 0) {
    text += fmt::format("; {} of {} dropped",
                        counted(summary.dropped_documents, "document"),
                        counted(summary.dropped_tokens, "token"));
  }
  if (summary.lone_tokens > 0) {
    text += fmt::format("; {} left over", counted(summary.lone_tokens, "token"));
  }
  return text + describe_bytes(summary.invalid_bytes, summary.missing_bytes);
}

std::int64_t count_missing_bytes(const Document& document, const TextEncoder& encoder) {
  if (encoder.missing_bytes.empty()) {
    return 0;
  }
  std::array<bool, 256> is_missing{};
  for (const std::uint8_t byte : encoder.missing_bytes) {
    is_missing.at(byte) = true;
  }
  return valid_utf8_bytes_among(document.text, is_missing) +
         valid_utf8_bytes_among(document.prompt.value_or(""), is_missing);
}

std::string describe_bytes(std::int64_t invalid, std::int64_t missing) {
  std::string text;
  if (invalid > 0) {
    text += fmt::format("; {} not UTF-8, read as U+FFFD", counted(invalid, "byte"));
  }
  if (missing > 0) {
    text += fmt::format("; {} that no token stands for", counted(missing, "byte"));
  }
  return text;
}

void Sample::write_targets(std::span<std::int32_t> targets) const {
  if (targets.size() != tokens.size()) {
    fail(ErrorCode::kInternal,
         kWhere,
         "room for {} targets of a sample of {} tokens",
         targets.size(),
         tokens.size());
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool is_target =
        i + 1 < tokens.size() && static_cast<std::int64_t>(i) + 1 >= first_target;
    targets[i] = is_target ? tokens[i + 1] : ops::kNoTarget;
  }
}

Dataset Dataset::load(const DataOptions& options, const TextEncoder& encoder) {
  if (options.context < 2 || options.context > kLongestContext) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "--context {} is not in 2 .. {}",
         options.context,
         kLongestContext);
  }
  Dataset result;
  read_documents(options.documents,
                 [&](const Document& document) { result.add(document, options, encoder); });
  result.finish(options);
  return result;
}

Dataset Dataset::random(std::int64_t samples, std::int64_t context, std::int64_t vocabulary) {
  Dataset result;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(context));
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t i = 0; i < context; ++i) {
      tokens[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(random_below(static_cast<std::uint64_t>(sample),
                                                 static_cast<std::uint64_t>(i),
                                                 static_cast<std::uint32_t>(vocabulary)));
    }
    ++result.summary_.documents;
    result.add_runs(tokens, 0, context);
  }
  result.finish({.context = context});
  return result;
}

void Dataset::add(const Document& document,
                  const DataOptions& options,
                  const TextEncoder& encoder) {
  if (document.prompt && document.text.empty()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} has no target: its completion is empty",
         location_of(document));
  }
  const EncodedDocument encoded = encode(document, encoder);
  const std::size_t count = encoded.tokens.size();
  if (std::max<std::int64_t>(encoded.prompt, 1) >= static_cast<std::int64_t>(count)) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} has no target: it is a single token",
         location_of(document));
  }
  ++summary_.documents;
  summary_.invalid_bytes += document.invalid_bytes;
  summary_.missing_bytes += count_missing_bytes(document, encoder);
  if (static_cast<std::int64_t>(count) > options.context) {
    if (options.long_documents == LongDocuments::kDrop) {
      ++summary_.dropped_documents;
      summary_.dropped_tokens += static_cast<std::int64_t>(count);
      return;
    }
    if (options.long_documents == LongDocuments::kRefuse || document.prompt) {
      refuse_long(document, count, options.context);
    }
    ++summary_.split_documents;
  }
  add_runs(encoded.tokens, encoded.prompt, options.context);
}

void Dataset::add_runs(std::span<const std::int32_t> tokens,
                       std::int64_t prompt,
                       std::int64_t context) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t first = 0; first < count; first += context) {
    const std::int64_t length = std::min(context, count - first);
    if (length == 1) {
      ++summary_.lone_tokens;
      break;
    }
    Record record;
    record.offset = static_cast<std::int64_t>(tokens_.size());
    record.document = summary_.documents - 1;
    record.first_token = first;
    record.length = static_cast<std::int32_t>(length);
    record.first_target = static_cast<std::int32_t>(std::max<std::int64_t>(prompt, 1));
    records_.push_back(record);
    const auto run =
        tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length));
    tokens_.insert(tokens_.end(), run.begin(), run.end());
    summary_.targets += length - record.first_target;
    longest_ = std::max(longest_, length);
  }
}

void Dataset::finish(const DataOptions& options) {
  summary_.samples = size();
  summary_.tokens = static_cast<std::int64_t>(tokens_.size());
  if (records_.empty()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "no sample is left: {} dropped, as longer than the context of {} tokens",
         counted(summary_.dropped_documents, "document"),
         options.context);
  }
  tokens_.shrink_to_fit();
  records_.shrink_to_fit();
  const auto mix = [this](std::int64_t value) {
    fingerprint_ = random_bits(fingerprint_, static_cast<std::uint64_t>(value));
  };
  for (const Record& record : records_) {
    mix(record.length);
    mix(record.first_target);
  }
  for (const std::int32_t token : tokens_) {
    mix(token);
  }
}

Sample Dataset::sample(std::int64_t index) const {
  const Record& record = records_.at(static_cast<std::size_t>(index));
  return {.tokens = std::span(tokens_).subspan(static_cast<std::size_t>(record.offset),
                                               static_cast<std::size_t>(record.length)),
          .first_target = record.first_target,
          .document = record.document,
          .first_token = record.first_token};
}

std::int64_t Dataset::host_bytes() const {
  return static_cast<std::int64_t>(tokens_.capacity() * sizeof(std::int32_t) +
                                   records_.capacity() * sizeof(Record));
}

}  // namespace longtune
