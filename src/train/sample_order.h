#pragma once

#include <cstdint>
#include <vector>

namespace longtune {

enum class Shuffle : std::uint8_t {
  kNone,       ///< the order of the files, in every epoch
  kEachEpoch,  ///< another order in each epoch
};

/// The endless sequence of samples that a run reads: epoch after epoch, each sample once in each.
/// An epoch's order is a Fisher-Yates shuffle made from the seed and the epoch's number alone, so a
/// run is resumed by the number of samples read so far.
class SampleOrder {
 public:
  /// Throws Error kInvalidArgument where `samples` is not in [1, 2^32).
  SampleOrder(std::int64_t samples, Shuffle shuffle, std::uint64_t seed);

  /// The sample that is read at `position` >= 0. Quick unless the epoch changes.
  [[nodiscard]] std::int64_t sample_index(std::int64_t position);

 private:
  void shuffle_epoch(std::int64_t epoch);

  std::int64_t samples_;
  Shuffle shuffle_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::uint32_t> order_;  ///< of epoch_
};

}  // namespace longtune
