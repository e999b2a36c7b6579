#pragma once

#include <cstdint>

#include "ops/cpu/isa.h"

/// The inner products of attention over one tile of keys, compiled for each instruction set.
///
/// Query rows lie along the lanes of vectors: a panel holds kPanelRows of them, transposed, so that
/// the softmax of a row runs down its lane and no sum crosses lanes. What a lane computes does not
/// depend on the others, which is why a row's bits do not depend on the rows beside it. All five
/// matrix products then have one shape: scalars of the left operand, spread over a vector, times
/// vectors of the right one; keys and values are read as the pages hold them.
///
/// Operands are made of cells of 32 bits: an f32 each or, for products of bf16, two bf16 that are
/// neighbours along the sum, so that one step of a product takes two values of every row. Tables
/// for either kind say which by `values`; below, V stands for it. What is loaded, spread and
/// transposed is cells alike; sums, and all that is no operand of a product, are f32.
namespace longtune::ops::cpu {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kTileKeys = 64;

/// V values of an operand; moved about and never computed with where they are pairs.
using Cell = float;

/// Up to 64 keys and values. Rows have V neighbouring values of a token to a cell; steps have the
/// same value of V neighbouring tokens, zeros beyond the last one. With V = 1 they are the same.
struct KeyTile {
  const Cell* keys = nullptr;         ///< (count, D / V)
  const Cell* values = nullptr;       ///< (count, D / V); backward only
  const Cell* key_steps = nullptr;    ///< (ceil(count / V), D); backward only
  const Cell* value_steps = nullptr;  ///< (ceil(count / V), D); forward only
  std::int64_t count = 0;
};

/// One panel's softmax over the tiles visited so far. Scores are in units of ln 2, so that powers
/// of 2 take the place of exponentials.
struct ForwardPanel {
  const Cell* q_t = nullptr;  ///< (D / V, 16)
  float* out_t = nullptr;     ///< (D, 16), before division by `sum`
  float* highest = nullptr;   ///< (16) highest score seen; kNoScore at first
  float* sum = nullptr;       ///< (16) sum of 2^(score - highest)
};

/// Below every score that is finite, yet itself finite, so that differences with it are numbers.
constexpr float kNoScore = -3.0e38F;

struct ForwardTile {
  ForwardPanel panel;
  KeyTile tile;
  std::int64_t D = 0;
  float unit = 1;  ///< brings products of queries and keys to units of ln 2: scale * log2(e)
  /// (16) bit j of a row's word: the row sees key j; null where all rows see all keys. A key that
  /// no row of the panel sees is not read. A row that sees none keeps its state.
  const std::uint64_t* seen = nullptr;
};

/// The most rows that are computed without a panel, each with its values along the lanes: decoding
/// has as many as query heads share keys.
constexpr std::int64_t kFewRows = 4;

/// Keys and values of neighbouring tokens, (count, D) each, as the pages hold them.
struct TokenRun {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  std::int64_t count = 0;
};

/// One tile for few rows: the sums of ForwardTile in the same order, so the same bits, with lanes
/// along keys for the scores and along D for the output, straight from the pages.
struct FewRowsTile {
  const Cell* q = nullptr;   ///< (rows, D / V)
  float* out = nullptr;      ///< (rows, D), before division by `sum`
  float* highest = nullptr;  ///< (16), as in ForwardPanel
  float* sum = nullptr;      ///< (16)
  std::int64_t rows = 0;     ///< at most kFewRows
  std::int64_t D = 0;        ///< a multiple of 8
  float unit = 1;            ///< as in ForwardTile
  bool bf16 = false;         ///< of the pages, else f32; always where V is 2
  TokenRun runs[8];          ///< at most kTileKeys tokens together
  std::int64_t run_count = 0;
  const std::byte* next_keys = nullptr;  ///< of the tile to come, to be fetched meanwhile; optional
  /// (16), as in ForwardTile, but that keys before the last one that is seen are read.
  const std::uint64_t* seen = nullptr;
};

/// Rows that go through a tile together in the backward pass.
constexpr std::int64_t kBlockRows = 64;

struct BackwardTile {
  const Cell* q_t = nullptr;     ///< (panels, D / V, 16), a panel every D * 16 / V cells
  const Cell* dout_t = nullptr;  ///< likewise
  const float* lse = nullptr;    ///< (panels * 16) in units of ln 2; kNoRow for padding
  const float* delta = nullptr;  ///< (panels * 16)
  float* dq_t = nullptr;         ///< (panels, D, 16), added to
  KeyTile tile;
  std::int64_t D = 0;
  std::int64_t panels = 0;              ///< up to kBlockRows / kPanelRows
  float scale = 1;                      ///< of the scores
  float unit = 1;                       ///< as in ForwardTile
  const std::uint64_t* seen = nullptr;  ///< (panels * 16), as in ForwardTile

  /// For tiles whose keys and values want gradients; null for detached history.
  float* dk = nullptr;      ///< (padded D / 16, 64, 16): column panels of (64, D); added to
  float* dv = nullptr;      ///< likewise
  const Cell* q = nullptr;  ///< (padded D / 16, 64 / V, 16): column panels of (64, D), cells of V
                            ///< neighbouring rows, zeros as padding
  const Cell* dout = nullptr;  ///< likewise
};

/// What the rows of one panel give to the keys of a tile.
struct WeightTile {
  const Cell* q_t = nullptr;   ///< (D / V, 16)
  const float* lse = nullptr;  ///< (16) in units of ln 2; kNoRow for rows that do not count
  const Cell* keys = nullptr;  ///< (count, D / V)
  std::int64_t count = 0;
  std::int64_t D = 0;
  float unit = 1;                       ///< as in ForwardTile
  const std::uint64_t* seen = nullptr;  ///< (16), as in FewRowsTile
  float* sums = nullptr;                ///< (count, 16) a lane a row; added to
};

/// The log-sum-exp of a row that is only padding: its probabilities are zero.
constexpr float kNoRow = 3.0e38F;

/// D rounded up to whole panels.
constexpr std::int64_t padded_dimension(std::int64_t D) {
  return (D + kPanelRows - 1) / kPanelRows * kPanelRows;
}

/// The functions of one instruction set for one kind of cell.
struct AttentionTiles {
  std::int64_t values = 1;  ///< V, of a cell
  void (*forward)(const ForwardTile& tile);
  void (*forward_few)(const FewRowsTile& tile);
  void (*backward)(const BackwardTile& tile);
  void (*add_weights)(const WeightTile& tile);
  /// scores (count, 16) = keys (count, D / V) q_t (D / V, 16), each a sum over d in order.
  void (*scores)(
      const Cell* q_t, const Cell* keys, std::int64_t count, std::int64_t D, float* scores);
  /// panel (columns, 16) = transpose of rows (16, columns) with `stride` cells between rows.
  void (*transpose)(const Cell* rows, std::int64_t stride, std::int64_t columns, Cell* panel);
  /// The inverse.
  void (*untranspose)(const float* panel, std::int64_t D, float* rows, std::int64_t stride);
  /// bf16 to f32.
  void (*widen)(const std::uint16_t* bits, std::int64_t count, float* values);
  /// steps (ceil(count / 2), D) of rows (count, D / 2): see KeyTile. Null where V is 1.
  void (*interleave)(const Cell* rows, std::int64_t count, std::int64_t D, Cell* steps);
};

/// With cells of one value.
[[nodiscard]] const AttentionTiles& attention_tiles(Isa isa);

[[nodiscard]] const AttentionTiles& portable_attention_tiles();
[[nodiscard]] const AttentionTiles& avx2_attention_tiles();    ///< x86-64 only
[[nodiscard]] const AttentionTiles& avx512_attention_tiles();  ///< x86-64 only

/// With cells of two bf16, for a D that is a multiple of 16: products of AVX-512-BF16, which take
/// denormal numbers for zeros. Probabilities and gradients of scores are rounded to bf16 where they
/// are operands. x86-64 only.
[[nodiscard]] const AttentionTiles& avx512_bf16_attention_tiles();

}  // namespace longtune::ops::cpu
