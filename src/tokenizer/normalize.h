#pragma once

#include <string>
#include <string_view>

namespace longtune {

/// Unicode normalisation form C (UAX #15) of valid UTF-8, in time n log n at worst, however many
/// combining marks follow one another. Returns `text` itself where a quick look shows that nothing
/// changes, otherwise a copy kept in `storage`.
[[nodiscard]] std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace longtune
