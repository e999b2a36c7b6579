#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "model/source.h"
#include "tokenizer/tokenizer.h"

namespace longtune::cli {

/// A model and the tokenizer that belongs to it.
struct TextModel {
  std::unique_ptr<ModelSource> source;
  Tokenizer tokenizer;
};

/// Opens both, reading no weights. Throws Error kBadInput where the tokenizer knows tokens that the
/// model does not, and as open_model and Tokenizer::load do.
[[nodiscard]] TextModel open_text_model(const std::filesystem::path& path);

struct TextTokens {
  std::vector<std::int32_t> tokens;
  std::int64_t invalid_bytes = 0;  ///< as DataSummary counts them
  std::int64_t missing_bytes = 0;
};

/// The tokens of all documents, one after the other, as a text to be read: each begins with BOS
/// where the tokenizer asks for it, and EOS stands between them.
[[nodiscard]] TextTokens read_text_tokens(const std::vector<std::filesystem::path>& paths,
                                          const Tokenizer& tokenizer);

}  // namespace longtune::cli
