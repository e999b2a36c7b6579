#include "ops/cpu/top_scores.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace longtune::ops::cpu {
namespace {

// A whole number that is larger the higher the score.
std::int32_t key_of(float score) {
  const auto bits = std::bit_cast<std::int32_t>(score + 0.0F);  // -0 becomes 0
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

std::int64_t count_from(const std::vector<std::int32_t>& keys, std::int32_t least) {
  std::int32_t count = 0;
  for (const std::int32_t key : keys) {
    count += key >= least ? 1 : 0;
  }
  return count;
}

}  // namespace

// The highest number that at least k keys reach, by bisection; any that just k reach will do.
std::int32_t TopScores::threshold(std::int64_t k) const {
  const auto [least, most] = std::ranges::minmax(keys_);
  std::int64_t low = least;
  std::int64_t high = most;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    const std::int64_t count = count_from(keys_, static_cast<std::int32_t>(middle));
    if (count == k) {
      return static_cast<std::int32_t>(middle);
    }
    if (count > k) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<std::int32_t>(low);
}

void TopScores::find(std::span<const float> scores,
                     std::int64_t k,
                     std::vector<std::int32_t>& indices) {
  const auto count = static_cast<std::int64_t>(scores.size());
  indices.resize(static_cast<std::size_t>(std::min(k, count)));
  if (count <= k) {
    std::iota(indices.begin(), indices.end(), 0);
    return;
  }
  keys_.resize(scores.size());
  std::ranges::transform(scores, keys_.begin(), key_of);
  const std::int32_t least = threshold(k);
  std::int64_t of_least = k;  // that there is room for
  for (const std::int32_t key : keys_) {
    of_least -= key > least ? 1 : 0;
  }
  std::size_t taken = 0;
  for (std::size_t i = 0; i < keys_.size() && taken < indices.size(); ++i) {
    if (keys_[i] > least || (keys_[i] == least && of_least-- > 0)) {
      indices[taken++] = static_cast<std::int32_t>(i);
    }
  }
}

}  // namespace longtune::ops::cpu
