#pragma once

#include <vector>

#include "device/arena.h"
#include "ops/kv_pages.h"

namespace longtune {

/// Which layers' keys and values stay when the next layer is computed.
enum class KvKeep : std::uint8_t {
  kAllLayers,
  /// All layers share one set of pages: enough where a sequence is one segment, whose backward pass
  /// recomputes the keys and values of a layer before it reads them.
  kOneLayer,
};

struct KvShape {
  std::int64_t L = 0;
  std::int64_t Hkv = 0;
  std::int64_t D = 0;
  DType dtype = DType::kBf16;
  std::int64_t capacity = 0;  ///< tokens
  KvKeep keep = KvKeep::kAllLayers;
};

/// Keys and values of one sequence in pages of 64 tokens, on the device.
class KvStore {
 public:
  /// Throws Error kInvalidArgument for a capacity of more than 2^31 - 1 tokens.
  KvStore(const KvShape& shape, Arena& arena);

  /// The pages of one layer, with room for `capacity` tokens, of which the first `tokens` hold
  /// data.
  [[nodiscard]] ops::KvPages layer(std::int64_t layer, std::int64_t tokens) const;

  [[nodiscard]] std::int64_t capacity() const { return shape_.capacity; }

 private:
  KvShape shape_;
  std::int64_t pages_per_layer_;
  std::vector<std::byte*> pages_;  ///< (layers kept, pages_per_layer_)
};

}  // namespace longtune
