#include "ops/cpu/attention_tile_impl.h"

namespace longtune::ops::cpu {

const AttentionTiles& portable_attention_tiles() {
  return kTiles;
}

const AttentionTiles& attention_tiles(Isa isa) {
  return isa == Isa::kAvx2 ? avx2_attention_tiles() : portable_attention_tiles();
}

}  // namespace longtune::ops::cpu
