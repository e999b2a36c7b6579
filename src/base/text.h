#pragma once

#include <string>
#include <string_view>

namespace longtune {

/// `text` between single quotes for a one-line message: control characters and bytes beyond ASCII
/// as \xNN, cut with "..." after 80 bytes. For names that come out of files.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// `text` with control characters, those of Unicode's second block (U+0080 to U+009F) included, as
/// \xNN and all else as it is: what a terminal shows without obeying it.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace longtune
