#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/reader.h"
#include "model/source.h"

namespace longtune {

/// What both kinds of source share: admitted tensors and where their bytes lie.
class FileSource : public ModelSource {
 public:
  [[nodiscard]] const ModelConfig& config() const override { return config_; }

  [[nodiscard]] const std::vector<SourceTensor>& tensors() const override { return tensors_; }

  [[nodiscard]] const std::string& file_of(const std::string& name) const override;

  void read_rows(const std::string& name,
                 std::int64_t first,
                 std::int64_t count,
                 std::span<std::byte> target) const override;

 protected:
  struct Place {
    const Reader* file = nullptr;
    std::int64_t offset = 0;   ///< of the first row's first byte
    bool interleaved = false;  ///< rows (a vector's values) as GGUF permutes those of Q and K
  };

  /// Tensors are added in the order of their names.
  void add(SourceTensor tensor, Place place);

  ModelConfig config_;
  std::vector<std::unique_ptr<File>> files_;

 private:
  // Rows of bytes: a matrix's rows, or an interleaved vector's values.
  struct Rows {
    Place place;
    std::int64_t bytes = 0;  ///< of one row
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  [[nodiscard]] std::size_t index_of(const std::string& name) const;
  void read_interleaved(const Rows& rows, std::span<std::byte> target) const;

  std::vector<SourceTensor> tensors_;
  std::vector<Place> places_;  ///< by index in tensors_
};

}  // namespace longtune
