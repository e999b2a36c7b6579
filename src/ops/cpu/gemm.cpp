#include "ops/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "device/scratch_memory.h"
#include "ops/cpu/dropout.h"
#include "ops/cpu/gemm_kernels.h"
#include "ops/cpu/panel_kernels.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kLeftRows = 96;             // of A, packed for one pass: stays in L2
constexpr std::int64_t kMaxRows = 11 * kLeftRows;  // of C that a thread works on at a time
constexpr std::int64_t kMaxCols = 16 * kTileCols;  // of C that a thread works on at a time
constexpr std::int64_t kRowsAhead = 4;             // of A, prefetched: runs of k are short
static_assert(kGemmDepth < kLeftStride);

// One thread's working memory.
struct Scratch {
  union {
    alignas(64) float left[kLeftRows * kLeftStride];
    Bf16Pair left_pairs[kLeftRows * kLeftPairStride];
  };

  union {
    float right[kGemmDepth * kMaxCols];
    Bf16Pair right_pairs[kGemmDepth * kMaxCols];  // a panel's in the first half of its floats
  };

  float sums[(kMaxRows + 1) * kMaxCols];  // panel by panel, rows of kTileCols
  float rows[kTileCols * kLeftStride];
};

static_assert(sizeof(Scratch) <= kGemmScratchBytes);

struct Shape {
  std::int64_t M, N, K;
};

Shape shape_of(const Gemm& args) {
  const bool a_plain = args.a_layout == Layout::kPlain;
  const bool b_plain = args.b_layout == Layout::kPlain;
  return {.M = args.a.dim(a_plain ? 0 : 1),
          .N = b_plain ? args.b.K : args.b.N,
          .K = args.a.dim(a_plain ? 1 : 0)};
}

// A rectangle of C, computed by one thread.
struct Part {
  std::int64_t first_row, rows, first_col, cols;
};

// From one panel of a part's sums to the next: a row more than needed, so that the panels of a row
// share no cache sets where the rows are a power of two.
std::int64_t panel_stride(const Part& part) {
  return (part.rows + 1) * kTileCols;
}

struct Partition {
  std::int64_t rows, cols;  // of a part, but for those at the ends
  std::int64_t row_parts, col_parts;
};

// Cycles for a part of C, roughly: to multiply, unpack B, pack A, and keep C's sums.
double cycles(std::int64_t rows, std::int64_t cols, std::int64_t K) {
  const auto m = static_cast<double>(rows);
  const auto n = static_cast<double>(cols);
  return static_cast<double>(K) * (m * n / 16 + n + m / 4 + m * n / kGemmDepth);
}

// The same for one row.
double row_cycles(const Shape& shape) {
  constexpr double kWeightsPerCycle = 5;
  return static_cast<double>(shape.N) * static_cast<double>(shape.K) / kWeightsPerCycle;
}

// As many threads as have enough to do to be worth waking.
int useful_threads(double cycles) {
  constexpr double kWorthWaking = 50'000;
  const double wanted = 1 + cycles / kWorthWaking;
  return static_cast<int>(std::min<double>(wanted, omp_get_max_threads()));
}

// The cheapest of a few partitions of C: few parts repeat less packing, many keep all threads busy.
// No result depends on the choice.
Partition partition(const Shape& shape,
                    std::int64_t row_step,
                    std::int64_t col_step,
                    std::int64_t threads) {
  const auto parts_of = [](std::int64_t total, std::int64_t size) {
    return (total + size - 1) / size;
  };
  Partition best{};
  double best_cost = 0;
  const std::int64_t min_row_parts = parts_of(shape.M, kMaxRows);
  const std::int64_t min_col_parts = parts_of(shape.N, kMaxCols);
  for (std::int64_t r = min_row_parts; r < min_row_parts + threads; ++r) {
    for (std::int64_t c = min_col_parts; c < min_col_parts + threads; ++c) {
      Partition next{.rows = round_up(parts_of(shape.M, r), row_step),
                     .cols = round_up(parts_of(shape.N, c), col_step)};
      next.row_parts = parts_of(shape.M, next.rows);
      next.col_parts = parts_of(shape.N, next.cols);
      const std::int64_t rounds = parts_of(next.row_parts * next.col_parts, threads);
      const double cost = static_cast<double>(rounds) * cycles(next.rows, next.cols, shape.K);
      if (best.rows == 0 || cost < best_cost) {
        best = next;
        best_cost = cost;
      }
    }
  }
  return best;
}

// Runs of a matrix are too short for the machine to see them coming.
void prefetch(const std::byte* from, std::int64_t bytes) {
  for (std::int64_t line = 0; line < bytes; line += 64) {
    __builtin_prefetch(from + line);
  }
}

// A[first_row .., first_k ..] as f32, a row every kLeftStride.
void pack_left(const Gemm& args,
               const GemmKernels& kernels,
               const Part& part,
               std::int64_t first_k,
               std::int64_t depth,
               float* left) {
  const std::int64_t K = args.a.dim(1);
  if (args.a_layout == Layout::kTransposed) {
    with_float_type(args.a.dtype, [&]<class Float>(Float*) {
      for (std::int64_t k = 0; k < depth; ++k) {
        const auto* from = args.a.as<Float>() + (first_k + k) * K + part.first_row;
        for (std::int64_t m = 0; m < part.rows; ++m) {
          left[m * kLeftStride + k] = static_cast<float>(from[m]);
        }
      }
    });
    return;
  }
  for (std::int64_t m = 0; m < part.rows; ++m) {
    const std::int64_t at = (part.first_row + m) * K + first_k;
    const std::int64_t size = size_of(args.a.dtype);
    prefetch(args.a.data + (at + kRowsAhead * K) * size, depth * size);
    float* to = left + m * kLeftStride;
    if (args.a.dtype == DType::kBf16) {
      kernels.widen(args.a.as<BFloat16>() + at, depth, to);
    } else {
      std::copy_n(args.a.as<float>() + at, depth, to);
    }
    if (args.a_dropout.p > 0) {
      float factors[kGemmDepth];
      dropout_factors(args.a_dropout, part.first_row + m, K, first_k, depth, factors);
      for (std::int64_t k = 0; k < depth; ++k) {
        to[k] *= factors[k];
      }
    }
  }
}

// The same in pairs of steps of k, as bf16 rows already hold them; a zero after an odd last one.
void pack_left_pairs(
    const Gemm& args, const Part& part, std::int64_t first_k, std::int64_t depth, Bf16Pair* left) {
  const std::int64_t K = args.a.dim(1);
  for (std::int64_t m = 0; m < part.rows; ++m) {
    const std::int64_t at = (part.first_row + m) * K + first_k;
    prefetch(args.a.data + (at + kRowsAhead * K) * 2, depth * 2);
    Bf16Pair* to = left + m * kLeftPairStride;
    to[depth / 2] = 0;
    std::memcpy(to, args.a.data + at * 2, static_cast<std::size_t>(depth) * 2);
  }
}

// B[first_k .., first_col ..] from rows of B: a row is unpacked and dealt out to the panels.
void pack_right_plain(const Gemm& args,
                      const GemmKernels& kernels,
                      const Part& part,
                      std::int64_t first_k,
                      std::int64_t depth,
                      Scratch& scratch) {
  const std::int64_t padded = round_up(part.cols, kTileCols);
  float* row = scratch.rows;
  std::fill_n(row + part.cols, padded - part.cols, 0.0F);
  const std::int64_t block = block_values(args.b.format);
  const std::int64_t bytes = part.cols / block * block_bytes(args.b.format);
  for (std::int64_t k = 0; k < depth; ++k) {
    const std::int64_t ahead = (first_k + k + kRowsAhead) * args.b.K + part.first_col;
    prefetch(args.b.data + ahead / block * block_bytes(args.b.format), bytes);
    kernels.unpack(args.b, first_k + k, part.first_col, part.cols, row);
    if (args.b_dropout.p > 0) {
      float factors[kMaxCols];
      dropout_factors(args.b_dropout, first_k + k, args.b.K, part.first_col, part.cols, factors);
      for (std::int64_t n = 0; n < part.cols; ++n) {
        row[n] *= factors[n];
      }
    }
    for (std::int64_t n = 0; n < padded; n += kTileCols) {
      std::memcpy(scratch.right + n * depth + k * kTileCols, row + n, kTileCols * sizeof(float));
    }
  }
}

// The same from rows of B^T, which are columns of B: as many as a panel is wide at a time.
void pack_right_transposed(const Gemm& args,
                           const GemmKernels& kernels,
                           const Part& part,
                           std::int64_t first_k,
                           std::int64_t depth,
                           Scratch& scratch) {
  for (std::int64_t n = 0; n < part.cols; n += kTileCols) {
    for (std::int64_t i = 0; i < kTileCols; ++i) {
      float* row = scratch.rows + i * kLeftStride;
      if (n + i < part.cols) {
        kernels.unpack(args.b, part.first_col + n + i, first_k, depth, row);
      } else {
        std::fill_n(row, depth, 0.0F);
      }
    }
    kernels.transpose(scratch.rows, kLeftStride, depth, scratch.right + n * depth);
  }
}

// Both from panels of B^T: those that run along columns of B lie as they are needed, those that run
// along rows of B are turned, a square at a time.
void pack_right_panels(const Gemm& args,
                       const GemmKernels& kernels,
                       const Part& part,
                       std::int64_t first_k,
                       std::int64_t depth,
                       Scratch& scratch) {
  const PanelKernels& panels = panel_kernels();
  if (args.b_layout == Layout::kTransposed) {
    for (std::int64_t n = 0; n < part.cols; n += kTileCols) {
      panels.unpack(
          args.b, (part.first_col + n) / kTileCols, first_k, depth, scratch.right + n * depth);
    }
    return;
  }
  const std::int64_t padded = round_up(part.cols, kTileCols);
  float* turned = scratch.rows;  // (padded, kTileCols)
  std::fill_n(turned + part.cols * kTileCols, (padded - part.cols) * kTileCols, 0.0F);
  for (std::int64_t k = 0; k < depth; k += kTileCols) {
    panels.unpack(args.b, (first_k + k) / kTileCols, part.first_col, part.cols, turned);
    for (std::int64_t n = 0; n < padded; n += kTileCols) {
      kernels.transpose(
          turned + n * kTileCols, kTileCols, kTileCols, scratch.right + n * depth + k * kTileCols);
    }
  }
}

// B[first_k .., first_col ..] in panels of the part's columns.
void pack_right(const Gemm& args,
                const GemmKernels& kernels,
                const Part& part,
                std::int64_t first_k,
                std::int64_t depth,
                Scratch& scratch) {
  if (args.b.order == WeightOrder::kPanels) {
    pack_right_panels(args, kernels, part, first_k, depth, scratch);
  } else if (args.b_layout == Layout::kPlain) {
    pack_right_plain(args, kernels, part, first_k, depth, scratch);
  } else {
    pack_right_transposed(args, kernels, part, first_k, depth, scratch);
  }
}

// Whether a product goes by pairs of bf16: where A is bf16 and B a frozen matrix, which it rounds.
// Adapters are f32, so their products never do.
bool goes_by_pairs(const Gemm& args, const GemmKernels& kernels) {
  return kernels.multiply_pairs != nullptr && args.a.dtype == DType::kBf16 &&
         args.a_layout == Layout::kPlain && args.a_dropout.p == 0 &&
         args.b.format != WeightFormat::kF32 && args.b_dropout.p == 0;
}

// What B's block of k became.
enum class Packed : std::uint8_t { kFloats, kPairs };

Packed pack_pairs(const GemmKernels& kernels,
                  const Part& part,
                  std::int64_t depth,
                  Scratch& scratch) {
  for (std::int64_t n = 0; n < part.cols; n += kTileCols) {
    kernels.pair(scratch.right + n * depth, depth, scratch.right_pairs + n * depth);
  }
  return Packed::kPairs;
}

// Rows of A that are packed at `tile.a` by all panels of B: `tile` is the product of all of them.
template <class Step>
void multiply_tiles(const GemmKernels& kernels,
                    void (*multiply)(const TileProductOf<Step>&),
                    const TileProductOf<Step>& all,
                    std::int64_t left_stride) {
  TileProductOf<Step> tile = all;
  for (std::int64_t panel = 0; panel < all.panels; panel += kernels.tile_panels) {
    tile.panels = std::min(kernels.tile_panels, all.panels - panel);
    tile.b = all.b + panel * all.b_panel;
    for (std::int64_t m = 0; m < all.rows; m += kernels.tile_rows) {
      tile.rows = std::min(kernels.tile_rows, all.rows - m);
      tile.a = all.a + m * left_stride;
      tile.c = all.c + panel * all.c_panel + m * kTileCols;
      multiply(tile);
    }
  }
}

// Adds A[rows of the part, block of k] * B[block of k, columns of the part] to the part's sums, or
// begins them where `first`.
void multiply_block(const Gemm& args,
                    const GemmKernels& kernels,
                    const Part& part,
                    std::int64_t first_k,
                    std::int64_t depth,
                    Packed packed,
                    bool first,
                    Scratch& scratch) {
  for (std::int64_t done = 0; done < part.rows; done += kLeftRows) {
    Part pass = part;
    pass.first_row += done;
    pass.rows = std::min(kLeftRows, part.rows - done);
    const auto multiply_all = [&]<class Step>(auto* multiply, const Step* a, const Step* b) {
      const TileProductOf<Step> all{.a = a,
                                    .b = b,
                                    .b_panel = depth * kTileCols,
                                    .depth = packed == Packed::kPairs ? (depth + 1) / 2 : depth,
                                    .c = scratch.sums + done * kTileCols,
                                    .c_panel = panel_stride(part),
                                    .rows = pass.rows,
                                    .panels = round_up(part.cols, kTileCols) / kTileCols,
                                    .first = first};
      multiply_tiles(
          kernels, multiply, all, packed == Packed::kPairs ? kLeftPairStride : kLeftStride);
    };
    if (packed == Packed::kPairs) {
      pack_left_pairs(args, pass, first_k, depth, scratch.left_pairs);
      multiply_all(kernels.multiply_pairs,
                   std::as_const(scratch.left_pairs),
                   std::as_const(scratch.right_pairs));
    } else {
      pack_left(args, kernels, pass, first_k, depth, scratch.left);
      multiply_all(kernels.multiply, std::as_const(scratch.left), std::as_const(scratch.right));
    }
  }
}

// Adds the low-rank product to the part's sums.
void add_low_rank(const Gemm& args,
                  const GemmKernels& kernels,
                  const Part& part,
                  Scratch& scratch) {
  const Gemm::LowRank& low_rank = args.low_rank;
  const Gemm product{.a = low_rank.u, .b = as_weight(low_rank.v), .b_layout = low_rank.v_layout};
  const std::int64_t R = low_rank.u.dim(1);
  for (std::int64_t r = 0; r < R; r += kGemmDepth) {
    const std::int64_t depth = std::min(kGemmDepth, R - r);
    pack_right(product, kernels, part, r, depth, scratch);
    const std::int64_t packed = depth * round_up(part.cols, kTileCols);
    for (std::int64_t i = 0; i < packed; ++i) {
      scratch.right[i] *= low_rank.scale;
    }
    multiply_block(product, kernels, part, r, depth, Packed::kFloats, false, scratch);
  }
}

void finish_plain(const Gemm& args,
                  const GemmKernels& kernels,
                  const Part& part,
                  std::int64_t N,
                  const float* sums) {
  float mask[kMaxCols];
  GemmFinish finish{.panel_stride = panel_stride(part),
                    .scale = args.scale,
                    .mask = args.mask.p > 0 ? mask : nullptr,
                    .bias = args.bias ? args.bias.as<float>() + part.first_col : nullptr,
                    .bf16 = args.c.dtype == DType::kBf16};
  for (std::int64_t m = 0; m < part.rows; ++m) {
    const std::int64_t row = part.first_row + m;
    const std::int64_t at = (row * N + part.first_col) * size_of(args.c.dtype);
    if (args.mask.p > 0) {
      dropout_factors(args.mask, row, N, part.first_col, part.cols, mask);
    }
    finish.sums = sums + m * kTileCols;
    if (args.residual) {
      const std::int64_t ahead = kRowsAhead * N * size_of(args.c.dtype);
      prefetch(args.residual.data + at + ahead, part.cols * size_of(args.c.dtype));
      finish.residual = args.residual.data + at;
    }
    finish.out = args.c.data + at;
    kernels.finish(finish, part.cols);
  }
}

void finish_transposed(const Gemm& args, const Part& part, std::int64_t M, const float* sums) {
  for (std::int64_t n = 0; n < part.cols; ++n) {
    const std::int64_t at = (part.first_col + n) * M + part.first_row;
    const float* from = sums + n / kTileCols * panel_stride(part) + n % kTileCols;
    auto* c = args.c.as<float>() + at;
    const auto* residual = args.residual ? args.residual.as<float>() + at : nullptr;
    for (std::int64_t m = 0; m < part.rows; ++m) {
      const float value = args.scale * from[m * kTileCols];
      c[m] = residual == nullptr ? value : value + residual[m];
    }
  }
}

void compute(const Gemm& args,
             const GemmKernels& kernels,
             const Shape& shape,
             const Part& part,
             Scratch& scratch) {
  if (shape.K == 0) {
    std::fill_n(
        scratch.sums, round_up(part.cols, kTileCols) / kTileCols * panel_stride(part), 0.0F);
  }
  for (std::int64_t k = 0; k < shape.K; k += kGemmDepth) {
    const std::int64_t depth = std::min(kGemmDepth, shape.K - k);
    pack_right(args, kernels, part, k, depth, scratch);
    const Packed packed =
        goes_by_pairs(args, kernels) ? pack_pairs(kernels, part, depth, scratch) : Packed::kFloats;
    multiply_block(args, kernels, part, k, depth, packed, k == 0, scratch);
  }
  if (args.low_rank.u) {
    add_low_rank(args, kernels, part, scratch);
  }
  if (args.c_layout == Layout::kPlain) {
    finish_plain(args, kernels, part, shape.N, scratch.sums);
  } else {
    finish_transposed(args, part, shape.M, scratch.sums);
  }
}

// One row by weights in panels: memory is the limit, so nothing is packed.
bool is_row_product(const Gemm& args, const Shape& shape) {
  return shape.M == 1 && shape.K > 0 && args.b.order == WeightOrder::kPanels &&
         args.b_layout == Layout::kTransposed && args.a_layout == Layout::kPlain &&
         args.c_layout == Layout::kPlain && args.a_dropout.p == 0;
}

void row_product(const Gemm& args, const Shape& shape, int threads, Scratch* scratches) {
  const GemmKernels& kernels = gemm_kernels();
  const PanelKernels& panels = panel_kernels();
  const bool by_pairs = goes_by_pairs(args, kernels);
  static thread_local std::vector<float> wide;
  static thread_local std::vector<Bf16Pair> pairs;
  if (by_pairs) {
    pairs.assign(static_cast<std::size_t>(shape.K + 1) / 2, 0);
    std::memcpy(pairs.data(), args.a.data, static_cast<std::size_t>(shape.K) * 2);
  } else {
    wide.resize(static_cast<std::size_t>(shape.K));
    if (args.a.dtype == DType::kBf16) {
      kernels.widen(args.a.as<BFloat16>(), shape.K, wide.data());
    } else {
      std::copy_n(args.a.as<float>(), shape.K, wide.data());
    }
  }
  const RowProduct product{
      .a = wide.data(), .pairs = pairs.data(), .weight = args.b, .depth = kGemmDepth};
  // As many equal runs of columns for every thread.
  const std::int64_t runs = (shape.N + threads * kMaxCols - 1) / (threads * kMaxCols) * threads;
  const std::int64_t cols = round_up((shape.N + runs - 1) / runs, kTileCols);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (std::int64_t first = 0; first < shape.N; first += cols) {
    const Part part{
        .first_row = 0, .rows = 1, .first_col = first, .cols = std::min(cols, shape.N - first)};
    Scratch& scratch = scratches[omp_get_thread_num()];
    RowProduct run = product;
    run.first_panel = first / kPanelRows;
    run.panels = part.cols / kPanelRows;
    run.sums = scratch.sums;
    run.stride = panel_stride(part);
    by_pairs ? panels.multiply_row_pairs(run) : panels.multiply_row(run);
    if (args.low_rank.u) {
      add_low_rank(args, kernels, part, scratch);
    }
    finish_plain(args, kernels, part, shape.N, scratch.sums);
  }
}

}  // namespace

void gemm(const Gemm& args) {
  const Shape shape = shape_of(args);
  if (shape.M == 0 || shape.N == 0) {
    return;
  }
  const bool one_row = is_row_product(args, shape);
  const int threads =
      useful_threads(one_row ? row_cycles(shape) : cycles(shape.M, shape.N, shape.K));
  static thread_local ScratchMemory scratch;  // taken here: no exception may leave a thread
  auto* const scratches =
      reinterpret_cast<Scratch*>(scratch.at_least(threads * std::int64_t{sizeof(Scratch)}));
  if (one_row) {
    row_product(args, shape, threads, scratches);
    return;
  }
  const GemmKernels& kernels = gemm_kernels();
  // Blocks of B may run along its columns, so parts begin where blocks do.
  const std::int64_t col_step =
      std::lcm(kTileCols * kernels.tile_panels, block_values(args.b.format));
  const Partition split = partition(shape, kernels.tile_rows, col_step, threads);
  const std::int64_t parts = split.row_parts * split.col_parts;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && parts > 1)
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t row = i % split.row_parts * split.rows;
    const std::int64_t col = i / split.row_parts * split.cols;
    const Part part{.first_row = row,
                    .rows = std::min(split.rows, shape.M - row),
                    .first_col = col,
                    .cols = std::min(split.cols, shape.N - col)};
    compute(args, kernels, shape, part, scratches[omp_get_thread_num()]);
  }
}

WeightView as_weight(const ConstTensorView& matrix) {
  return {.data = matrix.data,
          .N = matrix.dim(0),
          .K = matrix.dim(1),
          .format = matrix.dtype == DType::kBf16 ? WeightFormat::kBf16 : WeightFormat::kF32};
}

}  // namespace longtune::ops::cpu
