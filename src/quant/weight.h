#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace longtune {

/// How a frozen matrix is stored. Blocks run along a row (along K, the input features).
enum class WeightFormat : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ8_0,  ///< GGUF: 32 values: f16 scale, 32 int8; value = scale * q
  kQ4_0,  ///< GGUF: 32 values: f16 scale, 16 bytes; value = scale * (q - 8); byte i holds values i
          ///< (low nibble) and i + 16 (high)
  kQ4_1,  ///< GGUF: 32 values: f16 scale, f16 minimum, 16 bytes; value = scale * q + minimum;
          ///< nibbles as in Q4_0
  kNf4,   ///< NormalFloat4 with double quantisation (QLoRA, arXiv:2305.14314), laid out as
          ///< WeightView says
};

/// "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "nf4".
[[nodiscard]] const char* name_of(WeightFormat format);

/// Values of an NF4 block, which share a scale, and scales of a nested block, which share one too.
constexpr std::int64_t kNf4Block = 64;
constexpr std::int64_t kNf4NestedBlock = 256;

/// Values in one block (1 for the plain formats, 64 for NF4) and, but for NF4, its bytes.
[[nodiscard]] std::int64_t block_values(WeightFormat format);
[[nodiscard]] std::int64_t block_bytes(WeightFormat format);

/// How the blocks of a matrix follow each other in memory.
enum class WeightOrder : std::uint8_t {
  kRows,    ///< row after row, as files hold them
  kPanels,  ///< kPanelRows rows side by side, in the order in which products read them; only where
            ///< N is a multiple of kPanelRows
};

/// Rows of a panel: as many output features as products compute side by side.
constexpr std::int64_t kPanelRows = 16;

/// A frozen matrix W (N output features, K input features) in memory of any space: trivially
/// copyable, non-owning.
///
/// In rows, all formats but NF4 hold N rows of K / block_values blocks, one after the other. NF4
/// holds, each part aligned to 128 bytes, what bitsandbytes checkpoints hold: `data`, 4-bit codes,
/// two a byte, the first in the high nibble, over the flattened matrix; `absmax`, for each 64
/// values an index into its 256-entry dynamic map; `nested_absmax`, one f32 for each 256 of those.
/// A block's scale is dynamic_map[absmax] * nested_absmax + nested_offset.
///
/// In panels, a panel lies where its rows lay: for each block of K in turn, the 16 scales, then
/// (Q4_1) the 16 minima, then the values, k by k, 16 of them side by side; two 4-bit codes share a
/// byte as nibble_place (quant/panels.h) says. NF4's `absmax` holds, panel by panel and block by
/// block, 16 of them side by side; `nested_absmax` stays in the order of rows.
struct WeightView {
  const std::byte* data = nullptr;
  std::int64_t N = 0;
  std::int64_t K = 0;
  WeightFormat format = WeightFormat::kF32;
  const std::uint8_t* absmax = nullptr;  ///< NF4: (N * K / 64)
  const float* nested_absmax = nullptr;  ///< NF4: (ceil(N * K / 64 / 256))
  float nested_offset = 0;               ///< NF4
  WeightOrder order = WeightOrder::kRows;

  /// Whether the argument is given at all.
  explicit operator bool() const { return N > 0; }
};

/// "q4_1 (576, 1536)"; for messages only.
[[nodiscard]] std::string describe(const WeightView& weight);

/// Bytes of a matrix in `format`; nothing where K is no multiple of the format's block or the size
/// leaves 63 bits.
[[nodiscard]] std::optional<std::int64_t> weight_bytes(WeightFormat format,
                                                       std::int64_t N,
                                                       std::int64_t K);

/// Bytes of one row in a format other than NF4.
[[nodiscard]] std::int64_t row_bytes(WeightFormat format, std::int64_t K);

/// The matrix that `memory`, of weight_bytes bytes (null while planning), holds in rows.
[[nodiscard]] WeightView weight_view(WeightFormat format,
                                     std::int64_t N,
                                     std::int64_t K,
                                     const std::byte* memory,
                                     float nested_offset = 0);

/// Values [column, column + count) of row `row`, in either order, as f32; `column` and `count` are
/// multiples of the block. Exact: every format's value is computed in f32 in the order that its
/// definition gives.
void unpack(const WeightView& weight,
            std::int64_t row,
            std::int64_t column,
            std::int64_t count,
            float* out);

}  // namespace longtune
