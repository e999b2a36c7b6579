#pragma once

#include "ops/lora.h"
#include "quant/weight.h"
#include "tensor/tensor_view.h"

namespace longtune::ops::cpu {

/// Whether an operand is stored with its rows and columns exchanged.
enum class Layout : std::uint8_t { kPlain, kTransposed };

/// The matrix product that linear layers, adapters and the output head stand on:
///
///     C[m, n] = scale * mask(m, n) * (sum_k A[m, k] * B[k, n] + (low rank)[m, n])
///               + bias[n] + residual[m, n]
///
/// in blocks, after Goto & van de Geijn 2008: B is unpacked, whatever its format, into panels of
/// kTileCols columns and kGemmDepth rows that stay in cache while all rows of A pass by, and tiles
/// of C are summed in registers.
///
/// Where A is bf16, plain and without dropout, and B neither f32 nor with dropout, instruction sets
/// with products of bf16 (Isa::kAvx512Bf16) round B to bf16 for them; sums are f32.
///
/// An element is the sum, over blocks of kGemmDepth, of sums that run over k in order, all in f32,
/// the low-rank product's blocks last: its bits depend on its row of A, its column of B and the
/// instruction set, on nothing else.
struct Gemm {
  TensorView c;  ///< (M, N) f32 or bf16; (N, M) where `c_layout` is kTransposed

  ConstTensorView a;  ///< (M, K) f32 or bf16; (K, M) where transposed
  Layout a_layout = Layout::kPlain;
  Dropout a_dropout;  ///< of A; only where A is not transposed

  WeightView b;  ///< (K, N); (N, K) where transposed
  Layout b_layout = Layout::kPlain;
  Dropout b_dropout;  ///< of B; only where B is not transposed

  /// scale * U V, summed along as so many more steps of k; optional.
  struct LowRank {
    ConstTensorView u;  ///< (M, R) f32
    ConstTensorView v;  ///< (R, N) f32; (N, R) where transposed
    Layout v_layout = Layout::kPlain;
    float scale = 1;
  };

  LowRank low_rank;

  Layout c_layout = Layout::kPlain;  ///< transposed: f32, without bias and mask
  float scale = 1;
  Dropout mask;              ///< of C before the residual is added
  ConstTensorView bias;      ///< (N) f32, optional
  ConstTensorView residual;  ///< shape and dtype of c, may be c itself; optional
};

constexpr std::int64_t kGemmDepth = 256;

/// Runs on the threads that use_threads allows, each with at most kGemmScratchBytes outside of the
/// arena, kept from one product to the next. Shapes are the caller's to check.
void gemm(const Gemm& args);

constexpr std::int64_t kGemmScratchBytes = 1536 * 1024;

/// A matrix of f32 or bf16 as a right operand.
[[nodiscard]] WeightView as_weight(const ConstTensorView& matrix);

}  // namespace longtune::ops::cpu
