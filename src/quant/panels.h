#pragma once

#include "quant/weight.h"

namespace longtune {

/// Brings a matrix held in rows into the order of panels (WeightOrder::kPanels), in place: a panel
/// takes the bytes that its rows took. `memory` is what rows.data points to. Needs a buffer of one
/// panel meanwhile. A matrix of which N is no multiple of kPanelRows stays as it is.
[[nodiscard]] WeightView arrange_panels(const WeightView& rows, std::byte* memory);

/// longtune::unpack of a matrix in panels.
void unpack_from_panel(const WeightView& panels,
                       std::int64_t row,
                       std::int64_t column,
                       std::int64_t count,
                       float* out);

/// Where the 4-bit code of step k and column n of a panel's block lies among the block's codes: the
/// byte, and how far up its code is shifted.
struct NibblePlace {
  std::int64_t byte = 0;
  unsigned shift = 0;
};

/// GGUF's codes, which become numbers by a shift and a mask: a word of 32 bits holds eight steps of
/// k of one column, the first in the lowest bits, and the words of 16 columns lie side by side.
[[nodiscard]] constexpr NibblePlace gguf_nibble_place(std::int64_t k, std::int64_t n) {
  return {.byte = k / 8 * 64 + n * 4 + k % 8 / 2, .shift = k % 2 == 0 ? 0U : 4U};
}

/// NF4's codes, which are looked up: 32 bytes hold four steps of k, the first two in their low
/// halves, so that 32 codes at a time, looked up byte by byte and interleaved twice, give columns
/// 0 .. 7 and 8 .. 15 of one step and then of the next.
[[nodiscard]] constexpr NibblePlace nf4_nibble_place(std::int64_t k, std::int64_t n) {
  return {.byte = k / 4 * 32 + n % 8 / 4 * 16 + k % 2 * 8 + n / 8 * 4 + n % 4,
          .shift = k % 4 < 2 ? 0U : 4U};
}

}  // namespace longtune
