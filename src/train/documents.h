#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace longtune {

/// One document, as its file holds it.
struct Document {
  std::string path;
  std::int64_t line = 0;              ///< 1-based line of a `.jsonl` file; 0 for a whole file
  std::optional<std::string> prompt;  ///< given: `text` is the completion of it
  std::string text;                   ///< UTF-8 but for `invalid_bytes` of it
  std::int64_t invalid_bytes = 0;     ///< bytes outside of any UTF-8 character
};

/// "books/emma.txt" or "chat.jsonl:17": where a document stands, for messages.
[[nodiscard]] std::string location_of(const Document& document);

struct DocumentOptions {
  std::vector<std::filesystem::path> paths;
  std::int64_t longest_line = 256 * kMiB;  ///< bytes of a line in a `.jsonl` file
  std::int64_t longest_file = 1 * kGiB;    ///< bytes of a `.txt` or `.md` file, read as a whole
};

/// Calls `visit` with every document of `paths`, in their order: a `.txt` or `.md` file is one
/// document, a `.jsonl` file one a line (blank lines aside), a directory its files, those of its
/// folders included, sorted by path. Links are followed. A byte order mark at the start of a file
/// is not part of it.
///
/// A line of JSON is an object with a string "text", or with strings "prompt" and "completion";
/// other members are not read.
///
/// Throws Error: kBadInput, naming file and line, for a path that does not exist, is no regular
/// file or has another extension, a link to a directory that it is in, an empty file, text that is
/// not UTF-8 (a NUL byte, or more than one byte in eight outside of any character), a line that is
/// not such an object; kIo where the system refuses.
void read_documents(const DocumentOptions& options,
                    const std::function<void(const Document&)>& visit);

/// Reads one line of a `.jsonl` file into `document`, whose path and line are set and used in
/// messages. Throws Error kBadInput. Apart for the sake of its fuzz target.
void parse_json_line(std::string_view line, Document& document);

}  // namespace longtune
