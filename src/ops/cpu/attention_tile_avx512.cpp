#include "ops/cpu/attention_tile_impl.inc"

namespace longtune::ops::cpu {

const AttentionTiles& avx512_attention_tiles() {
  static constexpr AttentionTiles kTiles = tiles_of<FloatStep>();
  return kTiles;
}

}  // namespace longtune::ops::cpu
