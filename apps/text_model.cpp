#include "apps/text_model.h"

#include "base/error.h"
#include "train/data.h"

namespace longtune::cli {

TextModel open_text_model(const std::filesystem::path& path) {
  TextModel model{open_model(path), Tokenizer::load(path)};
  const std::int64_t known = model.source->config().V;
  if (model.tokenizer.vocabulary_size() > known) {
    fail(ErrorCode::kBadInput,
         "model",
         "{}: its tokenizer has {} tokens, but its embedding table only {}",
         path.string(),
         model.tokenizer.vocabulary_size(),
         known);
  }
  return model;
}

TextTokens read_text_tokens(const std::vector<std::filesystem::path>& paths,
                            const Tokenizer& tokenizer) {
  const TextEncoder encoder = text_encoder(tokenizer);
  TextTokens result;
  std::vector<std::int32_t>& tokens = result.tokens;
  const auto append = [&](std::string_view text) {
    const std::vector<std::int32_t> more = encoder.encode(text);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  DocumentOptions options;
  options.paths = paths;
  read_documents(options, [&](const Document& document) {
    if (!tokens.empty()) {
      tokens.push_back(encoder.eos);
    }
    if (encoder.bos) {
      tokens.push_back(*encoder.bos);
    }
    if (document.prompt) {
      append(*document.prompt);
    }
    append(document.text);
    result.invalid_bytes += document.invalid_bytes;
    result.missing_bytes += count_missing_bytes(document, encoder);
  });
  return result;
}

}  // namespace longtune::cli
