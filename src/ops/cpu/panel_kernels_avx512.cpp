#include "ops/cpu/panel_readers_avx512.inc"

namespace longtune::ops::cpu {
namespace {

template <class Reader>
void unpack_as(const WeightView& weight,
               std::int64_t panel,
               std::int64_t first_k,
               std::int64_t depth,
               float* out) {
  Reader reader(weight, panel);
  const auto put = [&](std::int64_t k, __m512 values) {
    _mm512_storeu_ps(out + k * kPanelRows, values);
  };
  std::int64_t k = 0;
  for (; k + Reader::kBlock <= depth; k += Reader::kBlock) {
    reader.begin_block(first_k + k);
    for (std::int64_t u = k; u < k + Reader::kBlock; u += Reader::kUnit) {
      reader.unit(first_k + u, [&](std::int64_t i, __m512 values) { put(u + i, values); });
    }
  }
  if constexpr (Reader::kBlock == Reader::kUnit) {
    for (; k < depth; ++k) {
      put(k, reader.at(first_k + k));
    }
  }
}

struct FloatStep {
  template <class Reader>
  [[gnu::always_inline]] static __m512 unit(const RowProduct& args,
                                            const Reader& reader,
                                            std::int64_t u,
                                            __m512 sum) {
    const float* factors = args.a + u;
    asm("" : "+r"(factors));  // reading the factors for each panel is cheaper than keeping them
    reader.unit(u, [&](std::int64_t i, __m512 values) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(factors[i]), values, sum);
    });
    return sum;
  }

  template <class Reader>
  static __m512 rest(
      const RowProduct& args, const Reader& reader, std::int64_t k, std::int64_t end, __m512 sum) {
    for (; k < end; ++k) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(args.a[k]), reader.at(k), sum);
    }
    return sum;
  }
};

void unpack_panel(const WeightView& weight,
                  std::int64_t panel,
                  std::int64_t first_k,
                  std::int64_t depth,
                  float* out) {
  with_reader(weight.format,
              [&]<class Reader>() { unpack_as<Reader>(weight, panel, first_k, depth, out); });
}

}  // namespace

const PanelKernels& panel_kernels_avx512() {
  static constexpr PanelKernels kKernels = {.unpack = unpack_panel,
                                            .multiply_row = multiply_row_by<FloatStep>};
  return kKernels;
}

}  // namespace longtune::ops::cpu
