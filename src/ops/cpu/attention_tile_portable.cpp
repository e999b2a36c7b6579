#include "ops/cpu/attention_tile_impl.inc"

namespace longtune::ops::cpu {

const AttentionTiles& portable_attention_tiles() {
  static constexpr AttentionTiles kTiles = tiles_of<FloatStep>();
  return kTiles;
}

const AttentionTiles& attention_tiles([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) {
    return avx512_attention_tiles();
  }
  if (isa == Isa::kAvx2) {
    return avx2_attention_tiles();
  }
#endif
  return portable_attention_tiles();
}

}  // namespace longtune::ops::cpu
