#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "io/reader.h"

namespace longtune {

/// A tensor's entry in a safetensors header.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;                ///< as the format spells it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;  ///< outermost first
  std::int64_t offset = 0;          ///< of its first byte, from the start of the file
  std::int64_t bytes = 0;
};

/// The header of a safetensors file: 8 bytes of length, a JSON object, then the tensors' bytes.
/// Checked as the format demands: after `parse`, the tensors' bytes fill the rest of the file
/// without overlap, hole or rest, and each has as many as its dtype and shape say.
class Safetensors {
 public:
  /// Throws Error: kBadInput for a malformed header, naming file, tensor and value; kUnsupported
  /// for a dtype that the format does not know.
  [[nodiscard]] static Safetensors parse(const Reader& reader);

  /// Sorted by name.
  [[nodiscard]] const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }

  /// Null where there is none of that name.
  [[nodiscard]] const SafetensorsTensor* find(std::string_view name) const;

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a safetensors file tensor by tensor, so that it is never in memory whole. The file
/// appears at `finish`, complete, or not at all.
class SafetensorsWriter {
 public:
  /// `tensors`: in the order in which their bytes will come; `offset` and `bytes` are ignored.
  /// Throws Error kInvalidArgument for an unknown dtype, a bad shape or a name that comes twice,
  /// kIo.
  SafetensorsWriter(const std::filesystem::path& path,
                    const std::vector<SafetensorsTensor>& tensors,
                    const std::map<std::string, std::string>& metadata);

  /// The next bytes, in pieces of any size. Throws Error kInvalidArgument past the last tensor's
  /// end, kIo.
  void write(std::span<const std::byte> bytes);

  /// Throws Error kInvalidArgument where bytes are missing, kIo.
  void finish();

 private:
  AtomicFile file_;
  std::int64_t missing_ = 0;
};

}  // namespace longtune
