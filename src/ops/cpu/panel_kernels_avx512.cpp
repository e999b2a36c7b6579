#include "ops/cpu/panel_kernels.h"

#include <immintrin.h>

#include "quant/nf4.h"

namespace longtune::ops::cpu {
namespace {

// Vectors are the sixteen columns of a panel.

[[gnu::always_inline]] inline __m512 widen_halves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// Readers walk along one panel: `begin_block(k)` at each multiple of kBlock, then `unit(k, use)`
// for each kUnit steps of k, which calls use(i, values of step k + i).

// f32, f16 and bf16: numbers of their own.
template <WeightFormat kFormat>
class PlainReader {
  static constexpr std::int64_t kSize = kFormat == WeightFormat::kF32 ? 4 : 2;

 public:
  static constexpr std::int64_t kUnit = 4;
  static constexpr std::int64_t kUnitBytes = kUnit * kPanelRows * kSize;
  static constexpr std::int64_t kBlock = kUnit;

  PlainReader(const WeightView& weight, std::int64_t panel)
      : values_(weight.data + panel * kPanelRows * weight.K * kSize) {}

  void begin_block(std::int64_t /*k*/) {}

  [[nodiscard]] const std::byte* codes(std::int64_t k) const {
    return values_ + k * kPanelRows * kSize;
  }

  [[gnu::always_inline]] __m512 at(std::int64_t k) const {
    const std::byte* from = codes(k);
    if constexpr (kFormat == WeightFormat::kF32) {
      return _mm512_loadu_ps(from);
    } else if constexpr (kFormat == WeightFormat::kF16) {
      return widen_halves(from);
    } else {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
  }

  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kUnit; ++i) {
      use(i, at(k + i));
    }
  }

 private:
  const std::byte* values_;
};

class Q8Reader {
 public:
  static constexpr std::int64_t kUnit = 4;
  static constexpr std::int64_t kUnitBytes = kUnit * kPanelRows;
  static constexpr std::int64_t kBlock = 32;

  Q8Reader(const WeightView& weight, std::int64_t panel)
      : blocks_(weight.data + panel * kPanelRows * (weight.K / kBlock * 34)) {}

  [[gnu::always_inline]] void begin_block(std::int64_t k) {
    const std::byte* block = blocks_ + k / kBlock * (34 * kPanelRows);
    scale_ = widen_halves(block);
    values_ = block + 2 * kPanelRows - k * kPanelRows;
  }

  [[nodiscard]] const std::byte* codes(std::int64_t k) const { return values_ + k * kPanelRows; }

  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < kUnit; ++i) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes(k + i)));
      use(i, _mm512_mul_ps(scale_, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))));
    }
  }

 private:
  const std::byte* blocks_;
  const std::byte* values_ = nullptr;
  __m512 scale_ = _mm512_setzero_ps();
};

// Q4_0 and Q4_1. A word's lowest four bits are looked up as a number, which takes neither a mask nor
// a conversion. The products are exact (11 + 4 bits), so fusing the addition changes no bit, and
// scale * (q - 8) is scale * q + (-8 * scale).
template <WeightFormat kFormat>
class Q4Reader {
 public:
  static constexpr std::int64_t kUnit = 8;
  static constexpr std::int64_t kUnitBytes = kUnit / 2 * kPanelRows;
  static constexpr std::int64_t kBlock = 32;

  Q4Reader(const WeightView& weight, std::int64_t panel)
      : blocks_(weight.data + panel * (weight.K / kBlock * kBlockBytes)) {}

  [[gnu::always_inline]] void begin_block(std::int64_t k) {
    const std::byte* block = blocks_ + k / kBlock * kBlockBytes;
    scale_ = widen_halves(block);
    if constexpr (kMinimum) {
      minimum_ = widen_halves(block + 2 * kPanelRows);
    } else {
      minimum_ = _mm512_mul_ps(_mm512_set1_ps(-8.0F), scale_);
    }
    units_ = block + kHeadBytes - k * (kPanelRows / 2);
  }

  [[nodiscard]] const std::byte* codes(std::int64_t k) const {
    return units_ + k * (kPanelRows / 2);
  }

  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
    const __m512 numbers =
        _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i words = _mm512_loadu_si512(codes(k));
#pragma GCC unroll 8
    for (unsigned i = 0; i < kUnit; ++i) {
      const __m512 code = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * i), numbers);
      use(static_cast<std::int64_t>(i), _mm512_fmadd_ps(scale_, code, minimum_));
    }
  }

 private:
  static constexpr bool kMinimum = kFormat == WeightFormat::kQ4_1;
  static constexpr std::int64_t kHeadBytes = (kMinimum ? 4 : 2) * kPanelRows;
  static constexpr std::int64_t kBlockBytes = kHeadBytes + kBlock / 2 * kPanelRows;

  const std::byte* blocks_;
  const std::byte* units_ = nullptr;
  __m512 scale_ = _mm512_setzero_ps();
  __m512 minimum_ = _mm512_setzero_ps();
};

class Nf4Reader {
 public:
  static constexpr std::int64_t kUnit = 4;
  static constexpr std::int64_t kUnitBytes = kUnit / 2 * kPanelRows;
  static constexpr std::int64_t kBlock = kNf4Block;

  Nf4Reader(const WeightView& weight, std::int64_t panel)
      : weight_(weight),
        map_(reinterpret_cast<const float*>(&nf4_dynamic_map())),
        panel_(panel),
        units_(weight.data + panel * kPanelRows * (weight.K / 2)),
        numbers_(_mm512_loadu_ps(&nf4_code())) {}

  [[gnu::always_inline]] void begin_block(std::int64_t k) {
    const std::int64_t block = k / kBlock;
    if (block >= nested_end_) {
      load_nested(block);
    }
    const std::int64_t blocks = weight_.K / kBlock;
    const std::uint8_t* absmax = weight_.absmax + (panel_ * blocks + block) * kPanelRows;
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(absmax));
    const __m512 mapped = _mm512_i32gather_ps(_mm512_cvtepu8_epi32(bytes), map_, 4);
    // As nf4_scale: product and sum are rounded each.
    scale_ = _mm512_add_ps(_mm512_mul_ps(mapped, nested_), _mm512_set1_ps(weight_.nested_offset));
  }

  [[nodiscard]] const std::byte* codes(std::int64_t k) const {
    return units_ + k * (kPanelRows / 2);
  }

  // nf4_nibble_place: of the eight words of four codes, words 0, 4, 1 and 5 hold the columns of
  // steps 0 and 2 in order, the others those of steps 1 and 3. A lookup reads the lowest four bits.
  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes(k)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i ordered = _mm256_permutevar8x32_epi32(pairs, order);
    const __m512i even = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(ordered));
    const __m512i odd = _mm512_cvtepu8_epi32(_mm256_extracti128_si256(ordered, 1));
    use(0, number(even));
    use(1, number(odd));
    use(2, number(_mm512_srli_epi32(even, 4)));
    use(3, number(_mm512_srli_epi32(odd, 4)));
  }

 private:
  [[gnu::always_inline]] __m512 number(__m512i codes) const {
    return _mm512_mul_ps(_mm512_permutexvar_ps(codes, numbers_), scale_);
  }

  // The nested scales of the panel's rows, good until some row's next nested block begins.
  void load_nested(std::int64_t block) {
    const std::int64_t blocks = weight_.K / kBlock;
    float nested[kPanelRows];
    nested_end_ = blocks;
    for (std::int64_t n = 0; n < kPanelRows; ++n) {
      const std::int64_t flat = (panel_ * kPanelRows + n) * blocks + block;
      nested[n] = weight_.nested_absmax[flat / kNf4NestedBlock];
      const std::int64_t end = block + kNf4NestedBlock - flat % kNf4NestedBlock;
      nested_end_ = end < nested_end_ ? end : nested_end_;
    }
    nested_ = _mm512_loadu_ps(nested);
  }

  const WeightView& weight_;
  const float* map_;
  std::int64_t panel_;
  const std::byte* units_;
  std::int64_t nested_end_ = 0;
  __m512 numbers_;
  __m512 nested_ = _mm512_setzero_ps();
  __m512 scale_ = _mm512_setzero_ps();
};

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

// Panels side by side: a sum waits for its own last addition, so several have to be on their way.
constexpr int kTogether = 4;

std::int64_t row_bytes_of(const WeightView& weight) {
  switch (weight.format) {
    case WeightFormat::kF32:
      return weight.K * 4;
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return weight.K * 2;
    case WeightFormat::kQ8_0:
      return weight.K / 32 * 34;
    case WeightFormat::kQ4_0:
      return weight.K / 32 * 18;
    case WeightFormat::kQ4_1:
      return weight.K / 32 * 20;
    case WeightFormat::kNf4:
      return weight.K / 2;
  }
  return 0;
}

template <class Reader>
[[gnu::always_inline]] inline void prefetch(const std::byte* from) {
  for (std::int64_t line = 0; line < Reader::kUnitBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + line), _MM_HINT_T0);
  }
}

// The panels from `first` on, the last one again where there are fewer.
template <class Reader>
void multiply_together(const RowProduct& args, std::int64_t first) {
  const auto panel = [&](std::int64_t i) {
    return first + i < args.panels ? first + i : args.panels - 1;
  };
  const auto reader = [&](std::int64_t i) {
    return Reader(args.weight, args.first_panel + panel(i));
  };
  Reader readers[kTogether] = {reader(0), reader(1), reader(2), reader(3)};
  const std::int64_t K = args.weight.K;
  // Panels are too short for the machine to see them coming: the same place of the next ones.
  const std::int64_t ahead = kTogether * kPanelRows * row_bytes_of(args.weight);
  for (std::int64_t begin = 0; begin < K; begin += args.depth) {
    const std::int64_t end = begin + args.depth < K ? begin + args.depth : K;
    __m512 sums[kTogether];
#pragma GCC unroll 4
    for (__m512& sum : sums) {
      sum = _mm512_setzero_ps();
    }
    std::int64_t k = begin;
    for (; k + Reader::kBlock <= end; k += Reader::kBlock) {
#pragma GCC unroll 4
      for (int p = 0; p < kTogether; ++p) {
        readers[p].begin_block(k);
      }
      for (std::int64_t u = k; u < k + Reader::kBlock; u += Reader::kUnit) {
        const float* factors = args.a + u;
#pragma GCC unroll 4
        for (int p = 0; p < kTogether; ++p) {
          prefetch<Reader>(readers[p].codes(u) + ahead);
          readers[p].unit(u, [&](std::int64_t i, __m512 values) {
            sums[p] = _mm512_fmadd_ps(_mm512_set1_ps(factors[i]), values, sums[p]);
          });
          asm("" : "+r"(factors));  // reading the factors again is cheaper than keeping them
        }
      }
    }
    if constexpr (Reader::kBlock == Reader::kUnit) {
      for (; k < end; ++k) {
#pragma GCC unroll 4
        for (int p = 0; p < kTogether; ++p) {
          sums[p] = _mm512_fmadd_ps(_mm512_set1_ps(args.a[k]), readers[p].at(k), sums[p]);
        }
      }
    }
#pragma GCC unroll 4
    for (int p = 0; p < kTogether; ++p) {
      if (first + p < args.panels) {
        float* total = args.sums + (first + p) * args.stride;
        const __m512 sum = begin == 0 ? sums[p] : _mm512_add_ps(_mm512_loadu_ps(total), sums[p]);
        _mm512_storeu_ps(total, sum);
      }
    }
  }
}

template <class Reader>
void multiply_row_as(const RowProduct& args) {
  for (std::int64_t p = 0; p < args.panels; p += kTogether) {
    multiply_together<Reader>(args, p);
  }
}

// Calls body.operator()<Reader>() for the format's reader.
template <class Body>
void with_reader(WeightFormat format, Body&& body) {
  switch (format) {
    case WeightFormat::kF32:
      return body.template operator()<PlainReader<WeightFormat::kF32>>();
    case WeightFormat::kF16:
      return body.template operator()<PlainReader<WeightFormat::kF16>>();
    case WeightFormat::kBf16:
      return body.template operator()<PlainReader<WeightFormat::kBf16>>();
    case WeightFormat::kQ8_0:
      return body.template operator()<Q8Reader>();
    case WeightFormat::kQ4_0:
      return body.template operator()<Q4Reader<WeightFormat::kQ4_0>>();
    case WeightFormat::kQ4_1:
      return body.template operator()<Q4Reader<WeightFormat::kQ4_1>>();
    case WeightFormat::kNf4:
      return body.template operator()<Nf4Reader>();
  }
}

void unpack_panel(const WeightView& weight,
                  std::int64_t panel,
                  std::int64_t first_k,
                  std::int64_t depth,
                  float* out) {
  with_reader(weight.format,
              [&]<class Reader>() { unpack_as<Reader>(weight, panel, first_k, depth, out); });
}

void multiply_row(const RowProduct& args) {
  with_reader(args.weight.format, [&]<class Reader>() { multiply_row_as<Reader>(args); });
}

}  // namespace

const PanelKernels& panel_kernels_avx512() {
  static constexpr PanelKernels kKernels = {.unpack = unpack_panel, .multiply_row = multiply_row};
  return kKernels;
}

}  // namespace longtune::ops::cpu
