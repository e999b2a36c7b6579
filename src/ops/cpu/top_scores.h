#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longtune::ops::cpu {

/// Finds the highest of some scores without sorting them.
class TopScores {
 public:
  /// Indices of the `k` highest scores, all where there are no more, in ascending order; of equal
  /// scores the earlier one is taken first. No score is NaN. `indices` is overwritten.
  void find(std::span<const float> scores, std::int64_t k, std::vector<std::int32_t>& indices);

 private:
  [[nodiscard]] std::int32_t threshold(std::int64_t k) const;

  std::vector<std::int32_t> keys_;  // ordered as the scores are
};

}  // namespace longtune::ops::cpu
