#include "train/sample_order.h"

#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace longtune {
namespace {

constexpr std::uint64_t kShuffleStream = 0x73687566666C65;  // "shuffle"

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, Shuffle shuffle, std::uint64_t seed)
    : samples_(samples), shuffle_(shuffle), seed_(seed) {
  if (samples < 1 || samples >= (std::int64_t{1} << 32)) {
    fail(ErrorCode::kInvalidArgument,
         "data",
         "an order of {} samples; 1 to 2^32 - 1 are possible",
         samples);
  }
}

std::int64_t SampleOrder::sample_index(std::int64_t position) {
  if (shuffle_ == Shuffle::kNone) {
    return position % samples_;
  }
  if (position / samples_ != epoch_) {
    shuffle_epoch(position / samples_);
  }
  return order_[static_cast<std::size_t>(position % samples_)];
}

void SampleOrder::shuffle_epoch(std::int64_t epoch) {
  const std::uint64_t key =
      random_key(random_key(seed_, kShuffleStream), static_cast<std::uint64_t>(epoch));
  order_.resize(static_cast<std::size_t>(samples_));
  std::iota(order_.begin(), order_.end(), 0U);
  for (std::size_t i = order_.size() - 1; i > 0; --i) {
    std::swap(order_[i], order_[random_below(key, i, static_cast<std::uint32_t>(i + 1))]);
  }
  epoch_ = epoch;
}

}  // namespace longtune
