#include "base/error.h"
#include "train/data.h"

namespace longtune {

TextEncoder text_encoder(const Tokenizer& tokenizer) {
  if (!tokenizer.eos_token()) {
    fail(ErrorCode::kUnsupported,
         "data",
         "the tokenizer has no end-of-text token, with which documents end");
  }
  if (tokenizer.adds_bos() && !tokenizer.bos_token()) {
    fail(ErrorCode::kUnsupported,
         "data",
         "the tokenizer asks for a token at the begin of a document, but has none");
  }
  return {.encode =
              [&tokenizer](std::string_view text) {
                return tokenizer.encode(text, SpecialTokens::kAsText);
              },
          .bos = tokenizer.adds_bos() ? tokenizer.bos_token() : std::nullopt,
          .eos = *tokenizer.eos_token(),
          .missing_bytes = tokenizer.missing_bytes()};
}

}  // namespace longtune
