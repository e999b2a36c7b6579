#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace longtune {

/// Runs a parser on bytes of any kind: it may succeed, or refuse them as a malformed or unsupported
/// file. Anything else (another error code or exception) ends the fuzzer.
template <class Parse>
void expect_refusal(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kBadInput && error.code() != ErrorCode::kUnsupported) {
      std::fprintf(stderr, "not a refusal of the input: %s\n", error.what());
      std::abort();
    }
  }
}

}  // namespace longtune
