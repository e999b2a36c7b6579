#include <immintrin.h>

#include "ops/cpu/gemm_kernels.h"
#include "quant/nf4.h"

namespace longtune::ops::cpu {
namespace {

// 6 rows of two vectors make 12 sums, which hide the latency of two multiply-adds a cycle, and
// leave registers for two vectors of B and one broadcast value of A. All loops over rows are
// unrolled: a subscript that is not constant would keep the sums in memory.
template <int Rows>
void multiply_rows(const TileProduct& product) {
  const float* const a = product.a;
  const float* const b = product.b;
  float* const c = product.c;
  __m256 left[Rows];
  __m256 right[Rows];
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    left[r] = _mm256_setzero_ps();
    right[r] = _mm256_setzero_ps();
    _mm_prefetch(reinterpret_cast<const char*>(c + r * kTileCols), _MM_HINT_T0);
  }
  for (std::int64_t k = 0; k < product.depth; ++k) {
    const __m256 b_left = _mm256_loadu_ps(b + k * kTileCols);
    const __m256 b_right = _mm256_loadu_ps(b + k * kTileCols + 8);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const __m256 factor = _mm256_broadcast_ss(a + r * kLeftStride + k);
      left[r] = _mm256_fmadd_ps(factor, b_left, left[r]);
      right[r] = _mm256_fmadd_ps(factor, b_right, right[r]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r) {
    float* to = c + r * kTileCols;
    if (!product.first) {
      left[r] = _mm256_add_ps(_mm256_loadu_ps(to), left[r]);
      right[r] = _mm256_add_ps(_mm256_loadu_ps(to + 8), right[r]);
    }
    _mm256_storeu_ps(to, left[r]);
    _mm256_storeu_ps(to + 8, right[r]);
  }
}

void multiply(const TileProduct& product) {
  constexpr void (*kRows[])(const TileProduct&) = {multiply_rows<1>,
                                                   multiply_rows<2>,
                                                   multiply_rows<3>,
                                                   multiply_rows<4>,
                                                   multiply_rows<5>,
                                                   multiply_rows<6>};
  kRows[product.rows - 1](product);
}

__m256 bytes_to_float(__m128i bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

__m256 half_to_lanes(const std::byte* half) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, half, sizeof bits);
  return _mm256_set1_ps(_cvtsh_ss(bits));
}

// Nibbles 0 .. 15 of a GGUF block, then 16 .. 31.
struct Nibbles {
  __m128i low;
  __m128i high;
};

Nibbles nibbles_of(const std::byte* pairs) {
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs));
  const __m128i mask = _mm_set1_epi8(15);
  return {_mm_and_si128(all, mask), _mm_and_si128(_mm_srli_epi16(all, 4), mask)};
}

// The products are exact (11 + 8 bits), so the order of the two operations of Q4_1 is that of
// longtune::unpack whether or not they are fused.
void store_scaled(__m128i bytes, __m256 scale, float* out) {
  _mm256_storeu_ps(out, _mm256_mul_ps(scale, bytes_to_float(bytes)));
  _mm256_storeu_ps(out + 8, _mm256_mul_ps(scale, bytes_to_float(_mm_srli_si128(bytes, 8))));
}

void store_scaled(__m128i bytes, __m256 scale, __m256 minimum, float* out) {
  const __m128i upper = _mm_srli_si128(bytes, 8);
  _mm256_storeu_ps(out, _mm256_fmadd_ps(scale, bytes_to_float(bytes), minimum));
  _mm256_storeu_ps(out + 8, _mm256_fmadd_ps(scale, bytes_to_float(upper), minimum));
}

void unpack_q8_0(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t i = 0; i < blocks; ++i, from += 34, out += 32) {
    const __m256 scale = half_to_lanes(from);
    const auto* values = reinterpret_cast<const __m128i*>(from + 2);
    store_scaled(_mm_loadu_si128(values), scale, out);
    store_scaled(_mm_loadu_si128(values + 1), scale, out + 16);
  }
}

void unpack_q4_0(const std::byte* from, std::int64_t blocks, float* out) {
  const __m128i eight = _mm_set1_epi8(8);
  for (std::int64_t i = 0; i < blocks; ++i, from += 18, out += 32) {
    const __m256 scale = half_to_lanes(from);
    const Nibbles nibbles = nibbles_of(from + 2);
    store_scaled(_mm_sub_epi8(nibbles.low, eight), scale, out);
    store_scaled(_mm_sub_epi8(nibbles.high, eight), scale, out + 16);
  }
}

void unpack_q4_1(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t i = 0; i < blocks; ++i, from += 20, out += 32) {
    const __m256 scale = half_to_lanes(from);
    const __m256 minimum = half_to_lanes(from + 2);
    const Nibbles nibbles = nibbles_of(from + 4);
    store_scaled(nibbles.low, scale, minimum, out);
    store_scaled(nibbles.high, scale, minimum, out + 16);
  }
}

// A lookup in 16 values: one in each half, then a choice by the index's top bit.
struct Nf4Table {
  __m256 low;
  __m256 high;

  [[gnu::always_inline]] __m256 at(__m128i indices) const {
    const __m256i wide = _mm256_cvtepu8_epi32(indices);
    const __m256 in_low = _mm256_permutevar8x32_ps(low, wide);
    const __m256 in_high = _mm256_permutevar8x32_ps(high, wide);
    return _mm256_blendv_ps(in_low, in_high, _mm256_castsi256_ps(_mm256_slli_epi32(wide, 28)));
  }
};

void unpack_nf4(const WeightView& weight,
                std::int64_t row,
                std::int64_t column,
                std::int64_t count,
                float* out) {
  const float* code = reinterpret_cast<const float*>(&nf4_code());
  const Nf4Table table = {_mm256_loadu_ps(code), _mm256_loadu_ps(code + 8)};
  const std::byte* pairs = weight.data + (row * weight.K + column) / 2;
  const __m128i mask = _mm_set1_epi8(15);
  for (std::int64_t i = 0; i < count; i += 32) {
    const __m256 scale = _mm256_set1_ps(nf4_scale(weight, row, (column + i) / 64));
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs + i / 2));
    const __m128i even = _mm_and_si128(_mm_srli_epi16(all, 4), mask);  // the first is the high one
    const __m128i odd = _mm_and_si128(all, mask);
    const __m128i lower = _mm_unpacklo_epi8(even, odd);
    const __m128i upper = _mm_unpackhi_epi8(even, odd);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(table.at(lower), scale));
    _mm256_storeu_ps(out + i + 8, _mm256_mul_ps(table.at(_mm_srli_si128(lower, 8)), scale));
    _mm256_storeu_ps(out + i + 16, _mm256_mul_ps(table.at(upper), scale));
    _mm256_storeu_ps(out + i + 24, _mm256_mul_ps(table.at(_mm_srli_si128(upper, 8)), scale));
  }
}

__m256 widen_vector(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

void widen(const BFloat16* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto* bits = reinterpret_cast<const __m128i*>(from + i);
    _mm256_storeu_ps(to + i, widen_vector(_mm_loadu_si128(bits)));
  }
  for (; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i].bits) << 16U;
    __builtin_memcpy(to + i, &bits, sizeof bits);
  }
}

void unpack_f16(const std::byte* from, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto* bits = reinterpret_cast<const __m128i*>(from + 2 * i);
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(bits)));
  }
  for (; i < count; ++i) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, from + 2 * i, sizeof bits);
    out[i] = _cvtsh_ss(bits);
  }
}

void unpack_avx2(const WeightView& weight,
                 std::int64_t row,
                 std::int64_t column,
                 std::int64_t count,
                 float* out) {
  const std::int64_t first = row * weight.K + column;
  switch (weight.format) {
    case WeightFormat::kF32:
      __builtin_memcpy(out, weight.data + 4 * first, static_cast<std::size_t>(count) * 4);
      return;
    case WeightFormat::kF16:
      return unpack_f16(weight.data + 2 * first, count, out);
    case WeightFormat::kBf16:
      return widen(reinterpret_cast<const BFloat16*>(weight.data) + first, count, out);
    case WeightFormat::kQ8_0:
      return unpack_q8_0(weight.data + first / 32 * 34, count / 32, out);
    case WeightFormat::kQ4_0:
      return unpack_q4_0(weight.data + first / 32 * 18, count / 32, out);
    case WeightFormat::kQ4_1:
      return unpack_q4_1(weight.data + first / 32 * 20, count / 32, out);
    case WeightFormat::kNf4:
      return unpack_nf4(weight, row, column, count, out);
  }
}

// Eight rows of eight values become eight columns, at panel[k * kTileCols].
void transpose_block(const float* rows, std::int64_t stride, float* panel) {
  __m256 pairs[8];
  for (int i = 0; i < 4; ++i) {
    const __m256 even = _mm256_loadu_ps(rows + 2 * i * stride);
    const __m256 odd = _mm256_loadu_ps(rows + (2 * i + 1) * stride);
    pairs[2 * i] = _mm256_unpacklo_ps(even, odd);
    pairs[2 * i + 1] = _mm256_unpackhi_ps(even, odd);
  }
  __m256 fours[8];  // fours[h * 4 + k]: columns k and k + 4 of rows 4 h .. 4 h + 3
  for (int h = 0; h < 2; ++h) {
    const __m256* half = pairs + 4 * h;
    fours[4 * h] = _mm256_shuffle_ps(half[0], half[2], 0x44);
    fours[4 * h + 1] = _mm256_shuffle_ps(half[0], half[2], 0xEE);
    fours[4 * h + 2] = _mm256_shuffle_ps(half[1], half[3], 0x44);
    fours[4 * h + 3] = _mm256_shuffle_ps(half[1], half[3], 0xEE);
  }
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_ps(panel + k * kTileCols, _mm256_permute2f128_ps(fours[k], fours[4 + k], 0x20));
    _mm256_storeu_ps(panel + (k + 4) * kTileCols,
                     _mm256_permute2f128_ps(fours[k], fours[4 + k], 0x31));
  }
}

void transpose(const float* rows, std::int64_t stride, std::int64_t depth, float* panel) {
  std::int64_t k = 0;
  for (; k + 8 <= depth; k += 8) {
    transpose_block(rows + k, stride, panel + k * kTileCols);
    transpose_block(rows + 8 * stride + k, stride, panel + k * kTileCols + 8);
  }
  for (; k < depth; ++k) {
    for (std::int64_t n = 0; n < kTileCols; ++n) {
      panel[k * kTileCols + n] = rows[n * stride + k];
    }
  }
}

// Round to nearest even, NaN kept: BFloat16(float), eight at a time.
__m128i narrow_vector(__m256 values) {
  const __m256i wide = _mm256_castps_si256(values);
  const __m256i upper = _mm256_srli_epi32(wide, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(wide, half), 16);
  const __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(rounded, nan, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
}

// Columns at .. at + 8.
[[gnu::always_inline]] inline void finish_vector(const GemmFinish& finish,
                                                 const float* sums,
                                                 std::int64_t at) {
  __m256 value = _mm256_mul_ps(_mm256_set1_ps(finish.scale), _mm256_loadu_ps(sums));
  if (finish.mask != nullptr) {
    value = _mm256_mul_ps(value, _mm256_loadu_ps(finish.mask + at));
  }
  if (finish.bias != nullptr) {
    value = _mm256_add_ps(value, _mm256_loadu_ps(finish.bias + at));
  }
  if (finish.bf16) {
    if (finish.residual != nullptr) {
      const auto* bits = reinterpret_cast<const __m128i*>(finish.residual + 2 * at);
      value = _mm256_add_ps(value, widen_vector(_mm_loadu_si128(bits)));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(finish.out + 2 * at), narrow_vector(value));
    return;
  }
  if (finish.residual != nullptr) {
    const auto* residual = reinterpret_cast<const float*>(finish.residual);
    value = _mm256_add_ps(value, _mm256_loadu_ps(residual + at));
  }
  _mm256_storeu_ps(reinterpret_cast<float*>(finish.out) + at, value);
}

// The last columns take the same way, through a copy of full width.
void finish_ragged(GemmFinish finish, const float* sums, std::int64_t at, std::int64_t count) {
  float mask[kTileCols] = {};
  float bias[kTileCols] = {};
  std::byte residual[4 * kTileCols] = {};
  std::byte out[4 * kTileCols];
  const auto used = static_cast<std::size_t>(count);
  const std::size_t size = finish.bf16 ? 2 : 4;
  const auto skipped = static_cast<std::size_t>(at) * size;
  if (finish.mask != nullptr) {
    __builtin_memcpy(mask, finish.mask + at, used * 4);
    finish.mask = mask;
  }
  if (finish.bias != nullptr) {
    __builtin_memcpy(bias, finish.bias + at, used * 4);
    finish.bias = bias;
  }
  if (finish.residual != nullptr) {
    __builtin_memcpy(residual, finish.residual + skipped, used * size);
    finish.residual = residual;
  }
  std::byte* const target = finish.out + skipped;
  finish.out = out;
  finish_vector(finish, sums, 0);
  finish_vector(finish, sums + 8, 8);
  __builtin_memcpy(target, out, used * size);
}

void finish(const GemmFinish& given, std::int64_t count) {
  const GemmFinish finish = given;  // a copy, which the bytes written to out cannot be part of
  const float* sums = finish.sums;
  for (std::int64_t at = 0; at < count; at += kTileCols, sums += finish.panel_stride) {
    if (count - at < kTileCols) {
      finish_ragged(finish, sums, at, count - at);
      return;
    }
    finish_vector(finish, sums, at);
    finish_vector(finish, sums + 8, at + 8);
  }
}

}  // namespace

const GemmKernels& gemm_kernels_avx2() {
  static constexpr GemmKernels kKernels = {
      .tile_rows = 6,
      .tile_panels = 1,
      .multiply = multiply,
      .unpack = unpack_avx2,
      .transpose = transpose,
      .widen = widen,
      .finish = finish};
  return kKernels;
}

}  // namespace longtune::ops::cpu
