#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace longtune::cli {

/// One key of a configuration file with its value as the text that the command line would take.
struct TomlValue {
  std::string name;                ///< "hga.topk-chunks": the names of tables, dotted
  std::vector<std::string> texts;  ///< of an array, its elements
  bool is_array = false;
  std::int64_t line = 0;
};

/// The values of a TOML file, tables flattened, in the order of the file. Throws Error: kBadInput,
/// naming file and line, for text that is no TOML and for values that no option takes (dates,
/// tables in arrays); kIo where the system refuses.
[[nodiscard]] std::vector<TomlValue> read_toml(const std::filesystem::path& path);

/// `text` as a TOML string.
[[nodiscard]] std::string toml_string(std::string_view text);

/// Whether TOML holds the number that `text` is: whole numbers must fit 64 bits with a sign.
[[nodiscard]] bool is_toml_number(std::string_view text);

}  // namespace longtune::cli
