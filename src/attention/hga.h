#pragma once

#include <memory>
#include <span>
#include <vector>

#include "attention/options.h"
#include "device/arena.h"
#include "device/host_memory.h"
#include "device/plan.h"
#include "ops/kv_pages.h"
#include "ops/selection.h"

namespace longtune {

/// Hierarchical Global Attention's memory of one sequence: the summaries of every layer's closed
/// chunks, on the device, and of their groups, in host memory, where they are read in place
/// (unified memory); the open lists, and the selections of the cell that ran forward last, which
/// the backward pass replays.
class Hga {
 public:
  struct Shape {
    std::int64_t L = 0;
    std::int64_t Hq = 0;
    std::int64_t Hkv = 0;
    std::int64_t D = 0;
    DType kv = DType::kBf16;
    std::int64_t context = 0;      ///< the most tokens of a sequence
    std::int64_t cell_tokens = 0;  ///< the most tokens of a cell
    bool replays = false;          ///< selections of all layers are kept until the next cell
  };

  Hga(const Shape& shape, const AttentionOptions& options, Arena& arena, Plan& plan);

  /// The model's angular frequencies (D / 2), after any RoPE scaling. Before the first cell.
  void load(std::span<const float> frequencies);

  /// Pages from before a cell of T tokens that `choose` has to read: of the chunk that the cell
  /// begins inside and closes.
  [[nodiscard]] std::vector<std::int32_t> pages_to_close(std::int64_t first_position,
                                                         std::int64_t T) const;

  /// What the queries (T, Hq, D) of a cell see in a layer whose pages hold the cell's keys already,
  /// those of pages_to_close among them. Layer by layer, and cell by cell from position 0 on, which
  /// begins a new sequence.
  [[nodiscard]] ops::Selection choose(std::int64_t layer,
                                      const ConstTensorView& q,
                                      const ops::KvPages& kv,
                                      std::int64_t first_position);

  /// What `choose` returned for the layer in the present cell.
  [[nodiscard]] ops::Selection chosen(std::int64_t layer) const;

 private:
  void close_chunks(std::int64_t layer, const ops::KvPages& kv, std::int64_t first_position);
  [[nodiscard]] ops::HgaRoute route(std::int64_t layer) const;

  Shape shape_;
  AttentionOptions options_;
  std::int64_t chunk_capacity_;
  std::int64_t lists_;
  TensorView turns_;   ///< (2, chunk, D / 2) f32
  TensorView chunks_;  ///< (L, Hkv, C, S) summaries of summary_width S, in the dtype of the pages
  TensorView groups_;  ///< (L, Hkv, C * chunk / group, S)
  HostMemory group_memory_;
  std::byte* open_;                     ///< (L) HgaOpenList
  std::byte* selections_;               ///< of all layers, or one
  std::vector<std::int64_t> closed_;    ///< (L) chunks that have summaries
  std::vector<ops::Selection> chosen_;  ///< (L)
};

}  // namespace longtune
