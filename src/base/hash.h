#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/random.h"

namespace longtune {

/// A hash of `bytes` that goes on from `hash`: tells files apart that differ by accident, not by
/// intent.
[[nodiscard]] inline std::uint64_t hash_bytes(std::uint64_t hash,
                                              std::span<const std::byte> bytes) {
  std::uint64_t word = 0;
  std::size_t at = 0;
  for (; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32U;
  }
  word = 0;
  if (at < bytes.size()) {
    std::memcpy(&word, bytes.data() + at, bytes.size() - at);
  }
  return random_bits(hash ^ word, bytes.size());
}

}  // namespace longtune
