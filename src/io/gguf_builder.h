#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/gguf.h"

namespace longtune {

template <class T>
[[nodiscard]] std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

/// Makes up GGUF files for tests, malformed ones too.
class GgufBuilder {
 public:
  std::uint64_t claim_keys = 0;     ///< a false count, where not 0
  std::uint64_t claim_tensors = 0;  ///< a false count, where not 0

  /// `bytes`: the value as it stands in the file.
  void raw(const std::string& key, GgufType type, const std::string& bytes) {
    keys_ += text(key) + little_endian(static_cast<std::uint32_t>(type)) + bytes;
    ++key_count_;
  }

  template <class T>
  void value(const std::string& key, GgufType type, T number) {
    raw(key, type, little_endian(number));
  }

  void string(const std::string& key, const std::string& value) {
    raw(key, GgufType::kString, text(value));
  }

  void strings(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes = array_head(GgufType::kString, values.size());
    for (const std::string& value : values) {
      bytes += text(value);
    }
    raw(key, GgufType::kArray, bytes);
  }

  template <class T>
  void array(const std::string& key, GgufType type, const std::vector<T>& values) {
    std::string bytes = array_head(type, values.size());
    for (const T value : values) {
      bytes += little_endian(value);
    }
    raw(key, GgufType::kArray, bytes);
  }

  /// A tensor with its data, which follows that of the tensors before it.
  void tensor(const std::string& name,
              std::uint32_t type,
              const std::vector<std::int64_t>& dims,
              const std::string& data) {
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    tensor_at(name, type, dims, static_cast<std::int64_t>(data_.size()));
    data_ += data;
  }

  /// A tensor's entry alone.
  void tensor_at(const std::string& name,
                 std::uint32_t type,
                 const std::vector<std::int64_t>& dims,
                 std::int64_t offset) {
    tensors_ += text(name) + little_endian(static_cast<std::uint32_t>(dims.size()));
    for (const std::int64_t dim : dims) {
      tensors_ += little_endian(dim);
    }
    tensors_ += little_endian(type) + little_endian(offset);
    ++tensor_count_;
  }

  [[nodiscard]] std::string bytes() const {
    std::string result = "GGUF" + little_endian(std::uint32_t{3});
    result += little_endian(claim_tensors != 0 ? claim_tensors : tensor_count_);
    result += little_endian(claim_keys != 0 ? claim_keys : key_count_);
    result += keys_ + tensors_;
    result.resize(data_.empty() ? result.size() : (result.size() + 31) / 32 * 32, '\0');
    return result + data_;
  }

 private:
  static std::string text(const std::string& value) {
    return little_endian(std::uint64_t{value.size()}) + value;
  }

  static std::string array_head(GgufType type, std::size_t count) {
    return little_endian(static_cast<std::uint32_t>(type)) + little_endian(std::uint64_t{count});
  }

  std::string keys_;
  std::string tensors_;
  std::string data_;
  std::uint64_t key_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace longtune
