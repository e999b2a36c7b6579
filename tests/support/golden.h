#pragma once

#include <cmath>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace longtune::test {

/// The folder of committed goldens.
inline std::filesystem::path goldens() {
  return LONGTUNE_GOLDENS;
}

/// Tensors of a golden file, read whole.
class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path)
      : file_(path), header_(Safetensors::parse(file_)) {}

  [[nodiscard]] std::vector<float> floats(const std::string& name) const {
    return read<float>(name, "F32");
  }

  [[nodiscard]] std::vector<std::int32_t> ints(const std::string& name) const {
    return read<std::int32_t>(name, "I32");
  }

  [[nodiscard]] const Safetensors& header() const { return header_; }

 private:
  template <class T>
  [[nodiscard]] std::vector<T> read(const std::string& name, const char* dtype) const {
    const SafetensorsTensor* tensor = header_.find(name);
    if (tensor == nullptr || tensor->dtype != dtype) {
      throw std::runtime_error(file_.name() + " has no " + dtype + " tensor " + name);
    }
    std::vector<T> values(tensor->bytes / sizeof(T));
    file_.read_at(tensor->offset, std::as_writable_bytes(std::span(values)));
    return values;
  }

  File file_;
  Safetensors header_;
};

/// |a - b| / |b| in the Euclidean norm.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a.at(i)) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace longtune::test
