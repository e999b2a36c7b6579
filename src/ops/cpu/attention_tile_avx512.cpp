#include "ops/cpu/attention_tile_impl.inc"

namespace longtune::ops::cpu {

const AttentionTiles& avx512_attention_tiles() {
  return kTiles;
}

}  // namespace longtune::ops::cpu
