#include "kv/store.h"

#include <limits>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

std::int64_t checked_capacity(std::int64_t tokens) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (tokens < 0 || tokens > kMost) {
    fail(ErrorCode::kInvalidArgument,
         "kv_store",
         "a context of {} tokens is not from 0 to {}",
         tokens,
         kMost);
  }
  return tokens;
}

}  // namespace

KvStore::KvStore(const KvShape& shape, Arena& arena)
    : shape_(shape),
      pages_per_layer_(round_up(checked_capacity(shape.capacity), ops::kPageTokens) /
                       ops::kPageTokens) {
  const std::int64_t layers = shape.keep == KvKeep::kAllLayers ? shape.L : 1;
  const std::int64_t page_bytes = ops::kv_page_bytes(shape.Hkv, shape.D, shape.dtype);
  pages_.reserve(layers * pages_per_layer_);
  for (std::int64_t i = 0; i < layers * pages_per_layer_; ++i) {
    pages_.push_back(arena.take_bytes("keys and values", page_bytes));
  }
}

ops::KvPages KvStore::layer(std::int64_t layer, std::int64_t tokens) const {
  if (tokens > shape_.capacity) {
    fail(ErrorCode::kInvalidArgument,
         "kv_store",
         "{} tokens do not fit the capacity of {}",
         tokens,
         shape_.capacity);
  }
  const std::int64_t slot = shape_.keep == KvKeep::kAllLayers ? layer : 0;
  return {.pages = pages_.data() + slot * pages_per_layer_,
          .tokens = tokens,
          .Hkv = shape_.Hkv,
          .D = shape_.D,
          .dtype = shape_.dtype};
}

}  // namespace longtune
