#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace longtune {

/// Expects `body` to throw Error of `code` with one line that contains `part`.
template <class Body>
void expect_error(Body&& body, ErrorCode code, std::string_view part) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), code) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nshould contain: " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace longtune
