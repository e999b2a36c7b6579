#include "ops/cpu/attention_tile_impl.inc"
#include "ops/cpu/bf16_pairs_avx512.inc"

namespace longtune::ops::cpu {
namespace {

// Cells of two bf16.
struct PairStep {
  static constexpr std::int64_t kValues = 2;

  static Vector add(Vector a, Vector b, Vector sum) {
    return add_pairs(sum, _mm512_castps_si512(a), _mm512_castps_si512(b));
  }

  using Rounded = __m256i;

  static Rounded rounded(Vector row) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(row)); }

  static Vector joined(const Rounded (&rows)[kValues]) {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(rows[0]), rows[1], 1);
    return _mm512_castsi512_ps(interleaved(both));
  }

  static void store_row(Cell* to, Rounded row) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), row);
  }

  // 16 columns of the first two of `count` rows, `stride` bytes apart.
  static Vector load_step(const std::byte* rows, std::int64_t stride, std::int64_t count) {
    const auto load_row = [](const std::byte* from) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    };
    const Rounded both[kValues] = {load_row(rows),
                                   count > 1 ? load_row(rows + stride) : _mm256_setzero_si256()};
    return joined(both);
  }
};

void interleave(const Cell* rows, std::int64_t count, std::int64_t D, Cell* steps) {
  for (std::int64_t row = 0; row < count; row += 2) {
    const auto* from = reinterpret_cast<const std::byte*>(rows + row * D / 2);
    for (std::int64_t d = 0; d < D; d += kPanelRows) {
      store(steps + row / 2 * D + d, PairStep::load_step(from + d * 2, D * 2, count - row));
    }
  }
}

constexpr AttentionTiles make_tiles() {
  AttentionTiles tiles = tiles_of<PairStep>();
  tiles.interleave = interleave;
  return tiles;
}

}  // namespace

const AttentionTiles& avx512_bf16_attention_tiles() {
  static constexpr AttentionTiles kTiles = make_tiles();
  return kTiles;
}

}  // namespace longtune::ops::cpu
