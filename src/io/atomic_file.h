#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace longtune {

/// A file that appears under its name complete or not at all: written under another name in the
/// same directory (".NAME.partial-..."), synced, then renamed over what may be there.
///
/// Every method throws Error kIo, with the path and the system's reason, where the system refuses
/// (a full disk, no permission).
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);

  /// Removes the partial file, unless `commit` has succeeded.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Makes the file appear. Nothing may be written after it.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  int descriptor_ = -1;
  bool committed_ = false;
};

/// A directory that appears under its name complete or not at all, in the same way. Where there is
/// one of that name already, it is exchanged and the old one removed. On a file system that cannot
/// exchange names the old one is renamed as a partial one first: a process that is killed just then
/// leaves no directory under the name, but both complete under partial names, which
/// remove_partials removes like any other.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(const std::filesystem::path& path);

  /// Removes the partial directory, unless `commit` has succeeded.
  ~AtomicDirectory();

  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Where the files are to be written until `commit`.
  [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }

  /// Syncs all files in it and makes the directory appear.
  void commit();

 private:
  void replace_in_two_steps();

  std::filesystem::path path_;
  std::filesystem::path partial_;
};

/// Writes a whole file atomically.
void write_file(const std::filesystem::path& path, std::string_view text);

/// Removes a directory so that it is complete or absent under its name at every moment: renamed as
/// a partial one first. Throws Error kIo where the system refuses.
void remove_directory(const std::filesystem::path& path);

/// Removes what killed writers left in `directory` (names as AtomicFile's). Not to be called while
/// another process writes there. Throws Error kIo.
void remove_partials(const std::filesystem::path& directory);

}  // namespace longtune
