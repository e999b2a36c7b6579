#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace longtune::cli {

/// Keeps the order in which members were added.
using Json = nlohmann::ordered_json;

/// Writes the file that --json names: a regular file, also behind a link, appears complete or not
/// at all; devices, pipes and what is open already, like /dev/stdout, are written on to. Text that
/// is no UTF-8 gets U+FFFD. Throws Error kIo.
void write_json(const std::filesystem::path& path, const Json& value);

/// Throws Error kIo where write_json surely could not write, so that it is known before the work
/// begins. Leaves no trace.
void check_writable(const std::filesystem::path& path);

}  // namespace longtune::cli
