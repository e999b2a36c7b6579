#include "ops/cpu/panel_kernels.h"

#include <immintrin.h>

#include "quant/nf4.h"

namespace longtune::ops::cpu {
namespace {

// Sixteen numbers side by side: columns 0 .. 7 and 8 .. 15 of a panel.
struct Columns {
  __m256 left;
  __m256 right;
};

[[gnu::always_inline]] inline __m256 widen_half(const std::byte* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

[[gnu::always_inline]] inline Columns widen_halves(const std::byte* from) {
  return {widen_half(from), widen_half(from + 16)};
}

// Readers walk along one panel: `begin_block(k)` at each multiple of kBlock, then `unit(k, use)`
// for each four steps of k, which calls use(i, values of step k + i).

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

  [[gnu::always_inline]] Columns at(std::int64_t k) const {
    const std::byte* from = codes(k);
    if constexpr (kFormat == WeightFormat::kF32) {
      const auto* floats = reinterpret_cast<const float*>(from);
      return {_mm256_loadu_ps(floats), _mm256_loadu_ps(floats + 8)};
    } else if constexpr (kFormat == WeightFormat::kF16) {
      return widen_halves(from);
    } else {
      return {widen_bf16(from), widen_bf16(from + 16)};
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
  static __m256 widen_bf16(const std::byte* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }

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
      const std::byte* from = codes(k + i);
      use(i,
          Columns{_mm256_mul_ps(scale_.left, eight(from)),
                  _mm256_mul_ps(scale_.right, eight(from + 8))});
    }
  }

 private:
  static __m256 eight(const std::byte* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  const std::byte* blocks_;
  const std::byte* values_ = nullptr;
  Columns scale_{};
};

// Q4_0 and Q4_1. The products are exact (11 + 4 bits), so fusing the addition changes no bit, and
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
      const __m256 eight = _mm256_set1_ps(-8.0F);
      minimum_ = {_mm256_mul_ps(eight, scale_.left), _mm256_mul_ps(eight, scale_.right)};
    }
    units_ = block + kHeadBytes - k * (kPanelRows / 2);
  }

  [[nodiscard]] const std::byte* codes(std::int64_t k) const {
    return units_ + k * (kPanelRows / 2);
  }

  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
    const auto* words = reinterpret_cast<const __m256i*>(codes(k));
    const __m256i left = _mm256_loadu_si256(words);
    const __m256i right = _mm256_loadu_si256(words + 1);
#pragma GCC unroll 8
    for (int i = 0; i < kUnit; ++i) {
      use(i,
          Columns{number(_mm256_srli_epi32(left, 4 * i), scale_.left, minimum_.left),
                  number(_mm256_srli_epi32(right, 4 * i), scale_.right, minimum_.right)});
    }
  }

 private:
  static constexpr bool kMinimum = kFormat == WeightFormat::kQ4_1;
  static constexpr std::int64_t kHeadBytes = (kMinimum ? 4 : 2) * kPanelRows;
  static constexpr std::int64_t kBlockBytes = kHeadBytes + kBlock / 2 * kPanelRows;

  // The code in the lowest bits of each word, as a number.
  static __m256 number(__m256i words, __m256 scale, __m256 minimum) {
    const __m256i codes = _mm256_and_si256(words, _mm256_set1_epi32(15));
    return _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(codes), minimum);
  }

  const std::byte* blocks_;
  const std::byte* units_ = nullptr;
  Columns scale_{};
  Columns minimum_{};
};

// The four bytes of NF4's numbers, apart: one byte shuffle looks one of them up for 32 codes.
class Nf4Table {
 public:
  Nf4Table() {
    const auto* codes = reinterpret_cast<const float*>(&nf4_code());
    for (int b = 0; b < 4; ++b) {
      alignas(16) std::uint8_t plane[16];
      for (int i = 0; i < 16; ++i) {
        std::uint32_t bits;
        __builtin_memcpy(&bits, codes + i, sizeof bits);
        plane[i] = static_cast<std::uint8_t>(bits >> (8 * b));
      }
      bytes_[b] =
          _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(plane)));
    }
  }

  // Two steps of k from 32 codes in the order of nf4_nibble_place.
  template <class Use>
  [[gnu::always_inline]] void two_steps(__m256i codes, std::int64_t i, Use&& use) const {
    const __m256i b0 = _mm256_shuffle_epi8(bytes_[0], codes);
    const __m256i b1 = _mm256_shuffle_epi8(bytes_[1], codes);
    const __m256i b2 = _mm256_shuffle_epi8(bytes_[2], codes);
    const __m256i b3 = _mm256_shuffle_epi8(bytes_[3], codes);
    use(i, interleaved(_mm256_unpacklo_epi8(b0, b1), _mm256_unpacklo_epi8(b2, b3)));
    use(i + 1, interleaved(_mm256_unpackhi_epi8(b0, b1), _mm256_unpackhi_epi8(b2, b3)));
  }

 private:
  static Columns interleaved(__m256i low, __m256i high) {
    return {_mm256_castsi256_ps(_mm256_unpacklo_epi16(low, high)),
            _mm256_castsi256_ps(_mm256_unpackhi_epi16(low, high))};
  }

  __m256i bytes_[4];
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
        units_(weight.data + panel * kPanelRows * (weight.K / 2)) {}

  [[gnu::always_inline]] void begin_block(std::int64_t k) {
    const std::int64_t block = k / kBlock;
    if (block >= nested_end_) {
      load_nested(block);
    }
    const std::int64_t blocks = weight_.K / kBlock;
    const std::uint8_t* absmax = weight_.absmax + (panel_ * blocks + block) * kPanelRows;
    scale_ = {scale_of(absmax, nested_.left), scale_of(absmax + 8, nested_.right)};
  }

  [[nodiscard]] const std::byte* codes(std::int64_t k) const {
    return units_ + k * (kPanelRows / 2);
  }

  template <class Use>
  [[gnu::always_inline]] void unit(std::int64_t k, Use&& use) const {
    const auto* unit = reinterpret_cast<const __m256i*>(codes(k));
    const __m256i pairs = _mm256_loadu_si256(unit);
    const __m256i mask = _mm256_set1_epi8(15);
    const auto scaled = [&](std::int64_t i, const Columns& codes) {
      use(i,
          Columns{_mm256_mul_ps(codes.left, scale_.left),
                  _mm256_mul_ps(codes.right, scale_.right)});
    };
    table_.two_steps(_mm256_and_si256(pairs, mask), 0, scaled);
    table_.two_steps(_mm256_and_si256(_mm256_srli_epi16(pairs, 4), mask), 2, scaled);
  }

 private:
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
    nested_ = {_mm256_loadu_ps(nested), _mm256_loadu_ps(nested + 8)};
  }

  // As nf4_scale: product and sum are rounded each.
  [[gnu::always_inline]] __m256 scale_of(const std::uint8_t* absmax, __m256 nested) const {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(absmax));
    const __m256 mapped = _mm256_i32gather_ps(map_, _mm256_cvtepu8_epi32(bytes), 4);
    return _mm256_add_ps(_mm256_mul_ps(mapped, nested), _mm256_set1_ps(weight_.nested_offset));
  }

  Nf4Table table_;
  const WeightView& weight_;
  const float* map_;
  std::int64_t panel_;
  const std::byte* units_;
  std::int64_t nested_end_ = 0;
  Columns nested_{};
  Columns scale_{};
};

template <class Reader>
void unpack_as(const WeightView& weight,
               std::int64_t panel,
               std::int64_t first_k,
               std::int64_t depth,
               float* out) {
  Reader reader(weight, panel);
  const auto put = [&](std::int64_t k, const Columns& values) {
    _mm256_storeu_ps(out + k * kPanelRows, values.left);
    _mm256_storeu_ps(out + k * kPanelRows + 8, values.right);
  };
  std::int64_t k = 0;
  for (; k + Reader::kBlock <= depth; k += Reader::kBlock) {
    reader.begin_block(first_k + k);
    for (std::int64_t u = k; u < k + Reader::kBlock; u += Reader::kUnit) {
      reader.unit(first_k + u, [&](std::int64_t i, const Columns& values) { put(u + i, values); });
    }
  }
  if constexpr (Reader::kBlock == Reader::kUnit) {
    for (; k < depth; ++k) {
      put(k, reader.at(first_k + k));
    }
  }
}

[[gnu::always_inline]] inline void add_product(Columns& sums,
                                               __m256 factor,
                                               const Columns& values) {
  sums.left = _mm256_fmadd_ps(factor, values.left, sums.left);
  sums.right = _mm256_fmadd_ps(factor, values.right, sums.right);
}

[[gnu::always_inline]] inline void join(const Columns& sums, float* total, bool first) {
  Columns all = sums;
  if (!first) {
    all.left = _mm256_add_ps(_mm256_loadu_ps(total), sums.left);
    all.right = _mm256_add_ps(_mm256_loadu_ps(total + 8), sums.right);
  }
  _mm256_storeu_ps(total, all.left);
  _mm256_storeu_ps(total + 8, all.right);
}

// Panels side by side: a sum waits for its own last addition; one panel alone would leave the units
// idle, and more than two do not fit the registers.
constexpr int kTogether = 2;

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
  Reader readers[kTogether] = {reader(0), reader(1)};
  const std::int64_t K = args.weight.K;
  // Panels are too short for the machine to see them coming: the same place of the next ones.
  const std::int64_t ahead = kTogether * kPanelRows * row_bytes_of(args.weight);
  for (std::int64_t begin = 0; begin < K; begin += args.depth) {
    const std::int64_t end = begin + args.depth < K ? begin + args.depth : K;
    Columns sums[kTogether];
    for (Columns& sum : sums) {
      sum = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    }
    std::int64_t k = begin;
    for (; k + Reader::kBlock <= end; k += Reader::kBlock) {
#pragma GCC unroll 2
      for (int p = 0; p < kTogether; ++p) {
        readers[p].begin_block(k);
      }
      for (std::int64_t u = k; u < k + Reader::kBlock; u += Reader::kUnit) {
        const float* factors = args.a + u;
#pragma GCC unroll 2
        for (int p = 0; p < kTogether; ++p) {
          prefetch<Reader>(readers[p].codes(u) + ahead);
          readers[p].unit(u, [&](std::int64_t i, const Columns& values) {
            add_product(sums[p], _mm256_broadcast_ss(factors + i), values);
          });
          asm("" : "+r"(factors));  // reading the factors again is cheaper than keeping them
        }
      }
    }
    if constexpr (Reader::kBlock == Reader::kUnit) {
      for (; k < end; ++k) {
        for (int p = 0; p < kTogether; ++p) {
          add_product(sums[p], _mm256_broadcast_ss(args.a + k), readers[p].at(k));
        }
      }
    }
    for (int p = 0; p < kTogether && first + p < args.panels; ++p) {
      join(sums[p], args.sums + (first + p) * args.stride, begin == 0);
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

const PanelKernels& panel_kernels_avx2() {
  static constexpr PanelKernels kKernels = {.unpack = unpack_panel, .multiply_row = multiply_row};
  return kKernels;
}

}  // namespace longtune::ops::cpu
