#pragma once

#include "tokenizer/tokenizer.h"

namespace longtune {

/// A tokenizer that was accepted encodes text of many kinds and decodes its own ids.
inline void exercise(const Tokenizer& tokenizer) {
  constexpr std::string_view kText =
      "It is 1816;\tdon't\r\n <|im_end|> na\xc3\xafve \xe6\xbc\xa2 \xf0\x9f\x99\x82\xff ";
  for (const auto special : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    static_cast<void>(tokenizer.decode(tokenizer.encode(kText, special), false));
  }
}

}  // namespace longtune
