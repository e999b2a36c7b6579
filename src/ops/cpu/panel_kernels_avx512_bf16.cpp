#include "ops/cpu/bf16_pairs_avx512.inc"
#include "ops/cpu/panel_readers_avx512.inc"

namespace longtune::ops::cpu {
namespace {

// Weights are rounded to bf16 as GemmKernels::pair does.
struct PairStep {
  template <class Reader>
  [[gnu::always_inline]] static __m512 unit(const RowProduct& args,
                                            const Reader& reader,
                                            std::int64_t u,
                                            __m512 sum) {
    const Bf16Pair* factors = args.pairs + u / 2;
    asm("" : "+r"(factors));  // reading the factors for each panel is cheaper than keeping them
    __m512 first = _mm512_setzero_ps();
    reader.unit(u, [&](std::int64_t i, __m512 values) {
      if (i % 2 == 0) {
        first = values;
      } else {
        sum = add_pairs(sum, spread(factors[i / 2]), paired(first, values));
      }
    });
    return sum;
  }

  // bf16 weights need no rounding: two steps of k lie side by side.
  [[gnu::always_inline]] static __m512 unit(const RowProduct& args,
                                            const PlainReader<WeightFormat::kBf16>& reader,
                                            std::int64_t u,
                                            __m512 sum) {
#pragma GCC unroll 2
    for (std::int64_t i = 0; i < 4; i += 2) {
      const __m512i halves = _mm512_loadu_si512(reader.codes(u + i));
      sum = add_pairs(sum, spread(args.pairs[(u + i) / 2]), interleaved(halves));
    }
    return sum;
  }

  template <class Reader>
  static __m512 rest(
      const RowProduct& args, const Reader& reader, std::int64_t k, std::int64_t end, __m512 sum) {
    for (; k < end; k += 2) {
      const __m512 second = k + 1 < end ? reader.at(k + 1) : _mm512_setzero_ps();
      sum = add_pairs(sum, spread(args.pairs[k / 2]), paired(reader.at(k), second));
    }
    return sum;
  }

 private:
  static __m512i spread(Bf16Pair pair) {
    return _mm512_set1_epi32(static_cast<int>(pair));
  }
};

}  // namespace

const PanelKernels& panel_kernels_avx512_bf16() {
  static const PanelKernels kKernels = [] {
    PanelKernels kernels = panel_kernels_avx512();
    kernels.multiply_row_pairs = multiply_row_by<PairStep>;
    return kernels;
  }();
  return kKernels;
}

}  // namespace longtune::ops::cpu
