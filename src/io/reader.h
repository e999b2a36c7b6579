#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace longtune {

/// Bytes at offsets: a file, or memory that a test or a fuzzer made up. Parsers take a Reader, so
/// that they see the same thing in both cases.
class Reader {
 public:
  virtual ~Reader() = default;
  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// How messages call it: the path.
  [[nodiscard]] virtual const std::string& name() const = 0;

  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Fills the whole of `target` from `offset` on. Throws Error: kBadInput where the bytes end
  /// earlier (a file may have shrunk since it was opened), kIo where the system refuses.
  virtual void read_at(std::int64_t offset, std::span<std::byte> target) const = 0;
};

/// A regular file, open for reading. Read by `pread`, never mapped: what is resident is what the
/// caller asked for. May be read from several threads at once.
class File final : public Reader {
 public:
  /// Throws Error: kBadInput where there is no such file or it is no regular file, kIo with the
  /// system's reason for the rest.
  explicit File(const std::filesystem::path& path);
  ~File() override;

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] std::int64_t size() const override { return size_; }

  void read_at(std::int64_t offset, std::span<std::byte> target) const override;

 private:
  std::string name_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

/// The whole of a file. Throws Error as File does, and kBadInput for a file of more than `largest`
/// bytes.
[[nodiscard]] std::string read_whole(const std::filesystem::path& path, std::int64_t largest);

/// Bytes in memory, which stay the caller's.
class MemoryReader final : public Reader {
 public:
  MemoryReader(std::string name, std::span<const std::byte> bytes)
      : name_(std::move(name)), bytes_(bytes) {}

  [[nodiscard]] const std::string& name() const override { return name_; }

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(bytes_.size());
  }

  void read_at(std::int64_t offset, std::span<std::byte> target) const override;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

}  // namespace longtune
