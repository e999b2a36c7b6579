#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "quant/weight.h"

namespace longtune {

/// The sixteen NF4 values, ascending, and the 256 values of bitsandbytes' signed dynamic map that
/// block scales are quantised with.
[[nodiscard]] const std::array<float, 16>& nf4_code();
[[nodiscard]] const std::array<float, 256>& nf4_dynamic_map();

/// Quantises a matrix row by row, so that the caller never holds it whole: first `add_rows` for
/// every row in order, then `finish`. Bit-compatible with bitsandbytes 0.50's quantize_4bit
/// (nf4, blocksize 64, compress_statistics): the same codes, scales and offset.
class Nf4Quantizer {
 public:
  /// `memory`: weight_bytes(kNf4, N, K) bytes to write to, which stay the caller's.
  /// Throws Error kUnsupported where K is no multiple of 64.
  Nf4Quantizer(std::int64_t N, std::int64_t K, std::byte* memory);

  /// The next values / K rows, as f32. Throws Error kInvalidArgument past N rows or for a ragged
  /// row.
  void add_rows(std::span<const float> values);

  /// Quantises the block scales and returns the finished matrix.
  [[nodiscard]] WeightView finish();

 private:
  std::int64_t N_;
  std::int64_t K_;
  std::byte* memory_;
  std::int64_t rows_ = 0;
  std::vector<float> absmax_;  ///< (N * K / 64)
};

}  // namespace longtune
