#pragma once

#include <optional>
#include <span>
#include <vector>

#include "attention/hga.h"
#include "kv/tiered_store.h"
#include "ops/attention.h"

namespace longtune {

/// Attention over keys and values in tiers: says what each query sees, brings it within reach, and
/// runs the kernels over as many queries at a time as the bank has room for. No bit depends on
/// that.
class RoutedAttention {
 public:
  struct Shape {
    std::int64_t L = 0;
    std::int64_t Hq = 0;
    std::int64_t Hkv = 0;
    std::int64_t D = 0;
    DType kv = DType::kBf16;       ///< see TieredKvStore::Shape
    std::int64_t context = 0;      ///< the most tokens of a sequence
    std::int64_t cell_tokens = 0;  ///< the most tokens of a cell
    bool replays = false;          ///< the backward pass replays what the forward pass saw
  };

  /// Takes device memory from `arena` and charges the other tiers to `plan`. Throws Error as
  /// TieredKvStore does, and kOutOfBudget for a bank in which the pages of one block of queries may
  /// find no room.
  RoutedAttention(const Shape& shape,
                  const AttentionOptions& options,
                  const KvTiers& tiers,
                  Arena& arena,
                  Plan& plan);

  /// The model's angular frequencies (D / 2), after any RoPE scaling. Before the first cell.
  void load(std::span<const float> frequencies);

  /// The next cell of the sequence; one at position 0 begins a new sequence.
  void begin_cell(std::int64_t first_position, std::int64_t T);

  /// Pages of a layer for the cell's keys and values to be written to.
  [[nodiscard]] ops::KvPages live(std::int64_t layer);

  /// After they were written, in the forward pass and again in the backward pass: closes the pages
  /// that are complete.
  void close(std::int64_t layer);

  /// Attention of a layer whose pages were closed: chooses what the
  /// cell's queries see, and lets go of the pages that the cell closed. `args` has all but kv,
  /// first_position and selection.
  void forward(std::int64_t layer, ops::AttentionForward args);

  /// The same again in the backward pass, after live(layer) was written and closed again.
  void recompute(std::int64_t layer, const ops::AttentionForward& args);

  /// Its gradients; `args` has all but kv, first_position, live_begin and selection.
  void backward(std::int64_t layer, ops::AttentionBackward args);

  [[nodiscard]] TieredKvStore::Traffic traffic() const { return store_.traffic(); }

 private:
  // Queries [first, first + count) of the cell and the history that they see.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::vector<std::int32_t> history;
  };

  [[nodiscard]] ops::Selection choose(std::int64_t layer, const ConstTensorView& q);
  [[nodiscard]] ops::Selection chosen(std::int64_t layer) const;
  [[nodiscard]] std::vector<Piece> pieces(const ops::Selection& selection) const;
  [[nodiscard]] ops::Selection part_of(const ops::Selection& all, std::int64_t first) const;
  void run_forward(std::int64_t layer,
                   const ops::Selection& selection,
                   const ops::AttentionForward& args);
  void prefetch(std::int64_t layer, const ops::Selection& selection);

  Shape shape_;
  std::optional<Hga> hga_;  ///< none: dense attention
  TieredKvStore store_;
  std::int64_t first_position_ = 0;  ///< of the cell
  std::int64_t T_ = 0;
};

}  // namespace longtune
