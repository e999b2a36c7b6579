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

/// The scale of block `block` (64 values) of row `row`, its product and its sum each rounded to f32,
/// as bitsandbytes computes it.
[[nodiscard]] float nf4_scale(const WeightView& weight, std::int64_t row, std::int64_t block);

/// Quantises a matrix row by row, so that the caller never holds it whole: first `add_rows` for
/// every row in order, then `finish`. Bit-compatible with bitsandbytes 0.50's quantize_4bit
/// (nf4, blocksize 64, compress_statistics) on a CPU:
///
/// - a block's scale is its largest magnitude; a value times the reciprocal of the scale gets the
///   nearest code, the lower one in a tie. These codes are the same on every machine.
/// - the offset is the f32 mean of the scales. Its last bit depends on the order of additions,
///   which PyTorch chooses by vector width and thread count; here it is that of one thread and
///   256-bit vectors (AVX2), so that offset, scale indices and nested scales are the same bytes
///   there. Elsewhere bitsandbytes itself differs from itself by that bit.
/// - a scale less the offset is quantised by a table of 65,536 steps over its nested block.
class Nf4Quantizer {
 public:
  /// `memory`: weight_bytes(kNf4, N, K) bytes to write to, which stay the caller's.
  /// Throws Error kUnsupported where K is no multiple of 64 or the matrix is empty.
  Nf4Quantizer(std::int64_t N, std::int64_t K, std::byte* memory);

  /// The next values / K rows, as f32. Throws Error kInvalidArgument past N rows or for a ragged
  /// row, kBadInput where a value is not finite.
  void add_rows(std::span<const float> values);

  /// Quantises the block scales and returns the finished matrix. Throws Error kInvalidArgument
  /// before the last row was added, kBadInput where the mean of the scales is not finite.
  [[nodiscard]] WeightView finish();

 private:
  std::int64_t N_;
  std::int64_t K_;
  std::byte* memory_;
  std::int64_t rows_ = 0;
  std::vector<float> absmax_;  ///< (N * K / 64)
};

}  // namespace longtune
