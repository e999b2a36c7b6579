#pragma once

#include <cstdint>
#include <string>

namespace longtune {

/// A safetensors file for tests, malformed as the arguments may be.
[[nodiscard]] inline std::string safetensors_bytes(const std::string& header,
                                                   const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

}  // namespace longtune
