// The source of attention_tile.h's functions, included once by the file of each instruction set,
// which defines nothing else. Everything has internal linkage: the same names mean other code
// there.
#pragma once

#include <cstdint>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

#include "ops/cpu/attention_tile.h"

namespace longtune::ops::cpu {
namespace {

#if defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8;
constexpr int kProductRows = 6;  // 6 x 2 vectors of sums leave registers for the operands
#else
constexpr int kLanes = 4;
constexpr int kProductRows = 2;
#endif
constexpr int kVectors = static_cast<int>(kPanelRows) / kLanes;

using Vector = float __attribute__((vector_size(4 * kLanes)));
using IntVector = std::int32_t __attribute__((vector_size(4 * kLanes)));
using UintVector = std::uint32_t __attribute__((vector_size(4 * kLanes)));
using LooseVector = float __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline Vector load(const float* p) {
  return *reinterpret_cast<const LooseVector*>(p);
}

inline void store(float* p, Vector v) {
  *reinterpret_cast<LooseVector*>(p) = v;
}

#if defined(__AVX2__) && defined(__FMA__)
inline Vector spread(float x) {
  return _mm256_set1_ps(x);
}

inline Vector multiply_add(Vector a, Vector b, Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}
#else
inline Vector spread(float x) {
  return Vector{x, x, x, x};
}

inline Vector multiply_add(Vector a, Vector b, Vector c) {
  return a * b + c;
}
#endif

// c[m][n] (+)= sum over panels p, then steps k, of
//
//     a[p * a_panel + m * a_row + k * a_step] * b[(p * steps + k) * 16 + n]        n < 16
//
// c and b are panels of contiguous rows of 16: wider strides would crowd a few sets of the cache.
struct Product {
  float* c;
  const float* a;
  std::int64_t a_row;
  std::int64_t a_step;
  const float* b;
  std::int64_t rows;
  std::int64_t steps;
  std::int64_t panels = 1;
  std::int64_t a_panel = 0;
};

template <int Rows, bool kAdd>
inline void product_rows(const Product& p, std::int64_t first) {
  Vector sums[Rows][kVectors];
  float* c = p.c + first * kPanelRows;
#pragma GCC unroll 16
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      sums[m][n] = kAdd ? load(c + m * kPanelRows + n * kLanes) : Vector{};
    }
  }
  const float* b = p.b;
  for (std::int64_t panel = 0; panel < p.panels; ++panel) {
    const float* a = p.a + first * p.a_row + panel * p.a_panel;
    for (std::int64_t k = 0; k < p.steps; ++k) {
      Vector right[kVectors];
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        right[n] = load(b + n * kLanes);
      }
#pragma GCC unroll 16
      for (int m = 0; m < Rows; ++m) {
        const Vector left = spread(a[m * p.a_row]);
#pragma GCC unroll 16
        for (int n = 0; n < kVectors; ++n) {
          sums[m][n] = multiply_add(left, right[n], sums[m][n]);
        }
      }
      a += p.a_step;
      b += kPanelRows;
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 16
    for (int n = 0; n < kVectors; ++n) {
      store(c + m * kPanelRows + n * kLanes, sums[m][n]);
    }
  }
}

// The rows that are left over when whole blocks are done.
template <int Rows, bool kAdd>
inline void product_rest(const Product& p, std::int64_t first) {
  if constexpr (Rows > 0) {
    if (p.rows - first == Rows) {
      product_rows<Rows, kAdd>(p, first);
    } else {
      product_rest<Rows - 1, kAdd>(p, first);
    }
  }
}

template <bool kAdd>
void product(const Product& p) {
  std::int64_t m = 0;
  for (; m + kProductRows <= p.rows; m += kProductRows) {
    product_rows<kProductRows, kAdd>(p, m);
  }
  product_rest<kProductRows - 1, kAdd>(p, m);
}

inline Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}

// 2^x for x <= 127, within 2.4e-7 of the truth, relatively; exactly 1 at 0 and exactly 0 below
// -126; NaN stays NaN. x = n + r with |r| <= 1/2, and 2^r is the minimax polynomial of degree 5
// whose constant is 1 (its own error: 1e-7).
inline Vector power_of_2(Vector x) {
  // Adding it rounds to an integer and leaves n plus the exponent's bias in the low bits.
  const Vector round = spread(12582912.0F + 127.0F);
  const Vector shifted = x + round;
  const Vector r = x - (shifted - round);
  Vector p = spread(1.326472726e-3F);
  p = multiply_add(p, r, spread(9.671512700e-3F));
  p = multiply_add(p, r, spread(5.550733744e-2F));
  p = multiply_add(p, r, spread(2.402224208e-1F));
  p = multiply_add(p, r, spread(6.931469776e-1F));
  p = multiply_add(p, r, spread(1.0F));
  const Vector power = reinterpret_cast<Vector>(reinterpret_cast<UintVector>(shifted) << 23);
  return x < spread(-126.0F) ? Vector{} : p * power;
}

// Keys that some row of the panels sees end before this.
std::int64_t seen_end(const std::uint64_t* seen, std::int64_t rows, std::int64_t count) {
  if (seen == nullptr) {
    return count;
  }
  std::uint64_t any = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    any |= seen[row];
  }
  const std::int64_t end = any == 0 ? 0 : 64 - __builtin_clzll(any);
  return end < count ? end : count;
}

// Scores (count, 16) of keys that a row does not see become minus infinity.
void hide(float* scores, std::int64_t count, const std::uint64_t* seen) {
  constexpr float kHidden = -__builtin_inff();
  for (int n = 0; n < kVectors; ++n) {
    for (std::int64_t half = 0; half * 32 < count; ++half) {
      IntVector bits{};
      for (int lane = 0; lane < kLanes; ++lane) {
        bits[lane] = static_cast<std::int32_t>(seen[n * kLanes + lane] >> (32 * half));
      }
      const std::int64_t end = count - half * 32 < 32 ? count - half * 32 : 32;
      for (std::int64_t j = 0; j < end; ++j) {
        float* score = scores + (half * 32 + j) * kPanelRows + n * kLanes;
        const auto sign = reinterpret_cast<IntVector>(reinterpret_cast<UintVector>(bits)
                                                      << static_cast<std::uint32_t>(31 - j));
        store(score, sign < 0 ? load(score) : spread(kHidden));
      }
    }
  }
}

// Calls body(i, row) for rows 0 to count, i being row % 4 and known when compiling: four chains
// hide the latency of what depends on the row before.
template <class Body>
inline void in_four_chains(std::int64_t count, Body&& body) {
  std::int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      body(i, j + i);
    }
  }
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    if (j + i < count) {
      body(i, j + i);
    }
  }
}

// Turns scores into powers relative to the highest so far and takes the sums along; returns whether
// some highest score moved, `factor` being what brings earlier sums to the new one.
bool softmax_lanes(float* scores, std::int64_t count, float* highest, float* sum, float* factor) {
  Vector high[4] = {load(highest), load(highest), load(highest), load(highest)};
  in_four_chains(count, [&](int i, std::int64_t j) {
    high[i] = larger(load(scores + j * kPanelRows), high[i]);
  });
  const Vector top = larger(larger(high[0], high[1]), larger(high[2], high[3]));
  const Vector scale = power_of_2(load(highest) - top);
  Vector sums[4] = {};
  in_four_chains(count, [&](int i, std::int64_t j) {
    const Vector p = power_of_2(load(scores + j * kPanelRows) - top);
    store(scores + j * kPanelRows, p);
    sums[i] += p;
  });
  store(sum, load(sum) * scale + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
  store(highest, top);
  store(factor, scale);
  bool moved = false;
  for (int lane = 0; lane < kLanes; ++lane) {
    moved |= factor[lane] != 1.0F;
  }
  return moved;
}

void rescale(float* out_t, std::int64_t D, const float* factor) {
  for (std::int64_t d = 0; d < D; ++d) {
    for (int n = 0; n < kVectors; ++n) {
      float* out = out_t + d * kPanelRows + n * kLanes;
      store(out, load(out) * load(factor + n * kLanes));
    }
  }
}

void forward_tile(const ForwardTile& args) {
  const auto& [panel, tile, D, seen] = args;
  const std::int64_t count = seen_end(seen, kPanelRows, tile.count);
  alignas(64) float scores[kTileKeys * kPanelRows];
  product<false>({.c = scores,
                  .a = tile.keys,
                  .a_row = D,
                  .a_step = 1,
                  .b = panel.q_t,
                  .rows = count,
                  .steps = D});
  if (seen != nullptr) {
    hide(scores, count, seen);
  }
  alignas(64) float factor[kPanelRows];
  bool moved = false;
  for (int n = 0; n < kVectors; ++n) {
    const int lane = n * kLanes;
    moved |=
        softmax_lanes(scores + lane, count, panel.highest + lane, panel.sum + lane, factor + lane);
  }
  if (moved) {  // a factor of 1 changes no bit
    rescale(panel.out_t, D, factor);
  }
  product<true>({.c = panel.out_t,
                 .a = tile.values,
                 .a_row = 1,
                 .a_step = D,
                 .b = scores,
                 .rows = D,
                 .steps = count});
}

// scores -> p = 2^(score - lse), dp -> scale * p * (dp - delta), over the lanes of one panel.
void score_gradients(float* scores,
                     float* dp,
                     std::int64_t count,
                     const float* lse,
                     const float* delta,
                     float scale) {
  for (int n = 0; n < kVectors; ++n) {
    const Vector lse_n = load(lse + n * kLanes);
    const Vector delta_n = load(delta + n * kLanes);
    const Vector scale_n = spread(scale);
    for (std::int64_t j = 0; j < count; ++j) {
      float* score = scores + j * kPanelRows + n * kLanes;
      float* ds = dp + j * kPanelRows + n * kLanes;
      const Vector p = power_of_2(load(score) - lse_n);
      store(score, p);
      store(ds, (load(ds) - delta_n) * (p * scale_n));
    }
  }
}

// p and ds: (panels, 64, 16).
void key_gradients(const BackwardTile& args, std::int64_t count, const float* p, const float* ds) {
  for (std::int64_t d = 0; d < args.D; d += kPanelRows) {
    Product gradient{.c = args.dk + d * kTileKeys,
                     .a = ds,
                     .a_row = kPanelRows,
                     .a_step = 1,
                     .b = args.q + d * kBlockRows,
                     .rows = count,
                     .steps = kPanelRows,
                     .panels = args.panels,
                     .a_panel = kTileKeys * kPanelRows};
    product<true>(gradient);
    gradient.c = args.dv + d * kTileKeys;
    gradient.a = p;
    gradient.b = args.dout + d * kBlockRows;
    product<true>(gradient);
  }
}

void backward_tile(const BackwardTile& args) {
  const std::int64_t D = args.D;
  const std::int64_t count = seen_end(args.seen, args.panels * kPanelRows, args.tile.count);
  alignas(64) float scores[kTileKeys * kBlockRows];
  alignas(64) float dp[kTileKeys * kBlockRows];
  for (std::int64_t panel = 0; panel < args.panels; ++panel) {
    const std::int64_t row = panel * kPanelRows;
    float* p = scores + row * kTileKeys;
    float* ds = dp + row * kTileKeys;
    Product score{.c = p,
                  .a = args.tile.keys,
                  .a_row = D,
                  .a_step = 1,
                  .b = args.q_t + row * D,
                  .rows = count,
                  .steps = D};
    product<false>(score);
    if (args.seen != nullptr) {
      hide(p, count, args.seen + row);
    }
    score.c = ds;
    score.a = args.tile.values;
    score.b = args.dout_t + row * D;
    product<false>(score);
    score_gradients(p, ds, count, args.lse + row, args.delta + row, args.scale);
    product<true>({.c = args.dq_t + row * D,
                   .a = args.tile.keys,
                   .a_row = 1,
                   .a_step = D,
                   .b = ds,
                   .rows = D,
                   .steps = count});
  }
  if (args.dk != nullptr) {
    key_gradients(args, count, scores, dp);
  }
}

#if defined(__AVX2__) && defined(__FMA__)
// Columns of the 8 x 8 square whose rows are v.
inline void transpose_square(Vector (&v)[8]) {
  Vector pair[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  Vector quad[8];
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xEE);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
  }
}
#else
inline void transpose_square(Vector (&v)[4]) {
  const Vector low[2] = {__builtin_shuffle(v[0], v[1], IntVector{0, 4, 1, 5}),
                         __builtin_shuffle(v[2], v[3], IntVector{0, 4, 1, 5})};
  const Vector high[2] = {__builtin_shuffle(v[0], v[1], IntVector{2, 6, 3, 7}),
                          __builtin_shuffle(v[2], v[3], IntVector{2, 6, 3, 7})};
  v[0] = __builtin_shuffle(low[0], low[1], IntVector{0, 1, 4, 5});
  v[1] = __builtin_shuffle(low[0], low[1], IntVector{2, 3, 6, 7});
  v[2] = __builtin_shuffle(high[0], high[1], IntVector{0, 1, 4, 5});
  v[3] = __builtin_shuffle(high[0], high[1], IntVector{2, 3, 6, 7});
}
#endif

void transpose(const float* rows, std::int64_t stride, std::int64_t D, float factor, float* panel) {
  std::int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    for (std::int64_t row = 0; row < kPanelRows; row += kLanes) {
      Vector square[kLanes];
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) {
        square[i] = load(rows + (row + i) * stride + d) * spread(factor);
      }
      transpose_square(square);
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) {
        store(panel + (d + i) * kPanelRows + row, square[i]);
      }
    }
  }
  for (; d < D; ++d) {
    for (std::int64_t row = 0; row < kPanelRows; ++row) {
      panel[d * kPanelRows + row] = rows[row * stride + d] * factor;
    }
  }
}

void untranspose(const float* panel, std::int64_t D, float* rows, std::int64_t stride) {
  std::int64_t d = 0;
  for (; d + kLanes <= D; d += kLanes) {
    for (std::int64_t row = 0; row < kPanelRows; row += kLanes) {
      Vector square[kLanes];
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) {
        square[i] = load(panel + (d + i) * kPanelRows + row);
      }
      transpose_square(square);
#pragma GCC unroll 8
      for (int i = 0; i < kLanes; ++i) {
        store(rows + (row + i) * stride + d, square[i]);
      }
    }
  }
  for (; d < D; ++d) {
    for (std::int64_t row = 0; row < kPanelRows; ++row) {
      rows[row * stride + d] = panel[d * kPanelRows + row];
    }
  }
}

void widen(const std::uint16_t* bits, std::int64_t count, float* values) {
  std::int64_t i = 0;
#if defined(__AVX2__) && defined(__FMA__)
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i));
    store(values + i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16)));
  }
#endif
  for (; i < count; ++i) {
    const std::uint32_t word = static_cast<std::uint32_t>(bits[i]) << 16U;
    __builtin_memcpy(values + i, &word, sizeof word);
  }
}

constexpr AttentionTiles kTiles{.forward = forward_tile,
                                .backward = backward_tile,
                                .transpose = transpose,
                                .untranspose = untranspose,
                                .widen = widen};

}  // namespace
}  // namespace longtune::ops::cpu
