#include "train/documents.h"

#include <algorithm>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "io/json.h"
#include "io/reader.h"
#include "train/utf8.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "data";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlank = " \t\r\n\f\v";

/// Bytes of a file, front to back, in blocks.
class FileReader {
 public:
  explicit FileReader(const std::string& path) : file_(path) {}

  /// The next bytes; none at the end. Valid until the next call.
  [[nodiscard]] std::string_view next() {
    block_.resize(static_cast<std::size_t>(std::min(kBlock, file_.size() - offset_)));
    file_.read_at(offset_, std::as_writable_bytes(std::span(block_)));
    offset_ += static_cast<std::int64_t>(block_.size());
    return block_;
  }

 private:
  static constexpr std::int64_t kBlock = 256 * kKiB;

  File file_;
  std::int64_t offset_ = 0;
  std::string block_;
};

[[nodiscard]] bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlank) == std::string_view::npos;
}

/// Refuses what is no text, and notes how much of the rest is not UTF-8.
void check_text(Document& document) {
  const std::string_view text = document.text;
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} is no text: byte {} is NUL; a text file in UTF-8 is wanted",
         location_of(document),
         nul);
  }
  document.invalid_bytes = invalid_utf8_bytes(text);
  if (document.invalid_bytes * 8 > static_cast<std::int64_t>(text.size())) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} is no UTF-8 text: {} of its {} bytes belong to no character",
         location_of(document),
         document.invalid_bytes,
         text.size());
  }
  if (is_blank(text)) {
    fail(ErrorCode::kBadInput, kWhere, "{} holds no text", location_of(document));
  }
}

void read_text_file(const std::string& path,
                    std::int64_t longest,
                    const std::function<void(const Document&)>& visit) {
  Document document;
  document.path = path;
  FileReader reader(path);
  for (std::string_view block = reader.next(); !block.empty(); block = reader.next()) {
    document.text += block;
    if (static_cast<std::int64_t>(document.text.size()) > longest) {
      fail(ErrorCode::kBadInput,
           kWhere,
           "{} is longer than {}, the most that one document may have; split it into files",
           path,
           format_bytes(longest));
    }
  }
  if (document.text.starts_with(kByteOrderMark)) {
    document.text.erase(0, kByteOrderMark.size());
  }
  check_text(document);
  visit(document);
}

/// Lines of a file without their ends, each held only while it is worked on.
class LineReader {
 public:
  LineReader(const std::string& path, std::int64_t longest)
      : path_(path), longest_(longest), reader_(path) {}

  /// The next line, or false at the end of the file.
  [[nodiscard]] bool next(std::string& line) {
    line.clear();
    ++number_;
    bool any = false;
    while (true) {
      if (block_.empty()) {
        block_ = reader_.next();
        if (block_.empty()) {
          return any;
        }
      }
      any = true;
      const std::size_t end = block_.find('\n');
      line += block_.substr(0, end);
      block_.remove_prefix(end == std::string_view::npos ? block_.size() : end + 1);
      check_length(line);
      if (end != std::string_view::npos) {
        return true;
      }
    }
  }

  [[nodiscard]] std::int64_t number() const { return number_; }

 private:
  void check_length(const std::string& line) const {
    if (static_cast<std::int64_t>(line.size()) > longest_) {
      fail(ErrorCode::kBadInput,
           kWhere,
           "{}:{} is longer than {}, the most that a line may have",
           path_,
           number_,
           format_bytes(longest_));
    }
  }

  std::string path_;
  std::int64_t longest_;
  FileReader reader_;
  std::string_view block_;
  std::int64_t number_ = 0;
};

void read_json_lines(const std::string& path,
                     std::int64_t longest,
                     const std::function<void(const Document&)>& visit) {
  LineReader lines(path, longest);
  std::string line;
  bool any = false;
  while (lines.next(line)) {
    std::string_view text = line;
    if (lines.number() == 1 && text.starts_with(kByteOrderMark)) {
      text.remove_prefix(kByteOrderMark.size());
    }
    if (is_blank(text)) {
      continue;
    }
    Document document;
    document.path = path;
    document.line = lines.number();
    parse_json_line(text, document);
    visit(document);
    any = true;
  }
  if (!any) {
    fail(ErrorCode::kBadInput, kWhere, "{} holds no lines of JSON", path);
  }
}

/// What a member of a line holds; nothing where the line has no such member.
[[nodiscard]] std::optional<std::string> string_member(const nlohmann::json& object,
                                                       const char* name,
                                                       const Document& document) {
  const auto found = object.find(name);
  if (found == object.end()) {
    return std::nullopt;
  }
  if (!found->is_string()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{}: \"{}\" is {}, not a string",
         location_of(document),
         name,
         found->type_name());
  }
  return found->get<std::string>();
}

/// Adds the files in `directory` and below it, links to directories followed. `above`: the real
/// paths of the directories that led here.
void add_files(const fs::path& directory,
               std::vector<fs::path>& above,
               std::vector<fs::path>& files) {
  const fs::path real = fs::canonical(directory);
  if (std::ranges::find(above, real) != above.end()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} leads back to {}, which it is in",
         directory.string(),
         real.string());
  }
  above.push_back(real);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::error_code dangling;  // a link to nothing is refused when it is read
    if (entry.is_directory(dangling)) {
      add_files(entry.path(), above, files);
    } else {
      files.push_back(entry.path());
    }
  }
  above.pop_back();
}

[[nodiscard]] std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> above;
  std::vector<fs::path> files;
  try {
    add_files(directory, above, files);
  } catch (const fs::filesystem_error& error) {
    fail(ErrorCode::kIo,
         kWhere,
         "{} cannot be listed: {}",
         error.path1().string(),
         error.code().message());
  }
  if (files.empty()) {
    fail(ErrorCode::kBadInput, kWhere, "the directory {} holds no files", directory.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void read_file(const fs::path& path,
               const DocumentOptions& options,
               const std::function<void(const Document&)>& visit) {
  const std::string extension = path.extension().string();
  if (extension == ".txt" || extension == ".md") {
    read_text_file(path.string(), options.longest_file, visit);
  } else if (extension == ".jsonl") {
    read_json_lines(path.string(), options.longest_line, visit);
  } else {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} has the extension {}; .txt, .md and .jsonl are read",
         path.string(),
         in_quotes(extension));
  }
}

}  // namespace

std::string location_of(const Document& document) {
  return document.line == 0 ? document.path : fmt::format("{}:{}", document.path, document.line);
}

void parse_json_line(std::string_view line, Document& document) {
  const nlohmann::json object = parse_json(line, location_of(document));
  if (!object.is_object()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} is {}, not an object",
         location_of(document),
         object.type_name());
  }
  std::optional<std::string> text = string_member(object, "text", document);
  std::optional<std::string> completion = string_member(object, "completion", document);
  document.prompt = string_member(object, "prompt", document);
  const bool has_pair = document.prompt && completion;
  if (text.has_value() == has_pair || document.prompt.has_value() != completion.has_value()) {
    fail(ErrorCode::kBadInput,
         kWhere,
         "{} must have \"text\", or \"prompt\" and \"completion\"",
         location_of(document));
  }
  document.text = std::move(has_pair ? *completion : *text);
}

void read_documents(const DocumentOptions& options,
                    const std::function<void(const Document&)>& visit) {
  for (const fs::path& path : options.paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      fail(ErrorCode::kBadInput, kWhere, "{} does not exist", path.string());
    }
    if (error) {
      fail(ErrorCode::kIo, kWhere, "{} cannot be read: {}", path.string(), error.message());
    }
    if (!fs::is_directory(status)) {
      read_file(path, options, visit);
      continue;
    }
    for (const fs::path& file : files_in(path)) {
      read_file(file, options, visit);
    }
  }
}

}  // namespace longtune
