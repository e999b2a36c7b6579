#include "ops/cpu/attention_tile_impl.inc"

namespace longtune::ops::cpu {

const AttentionTiles& avx2_attention_tiles() {
  static constexpr AttentionTiles kTiles = tiles_of<FloatStep>();
  return kTiles;
}

}  // namespace longtune::ops::cpu
