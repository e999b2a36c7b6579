#pragma once

#include "ops/hga_route.h"
#include "ops/hga_summaries.h"

namespace longtune {

/// Which past tokens a query sees.
enum class AttentionKind : std::uint8_t {
  kDense,  ///< all
  kHga,    ///< Hierarchical Global Attention (arXiv:2606.30709): sinks, a window, and routed groups
};

/// "dense", "hga".
[[nodiscard]] const char* name_of(AttentionKind kind);

/// "causal", "block".
[[nodiscard]] const char* name_of(ops::HgaRouting routing);

/// "mixed", "mean", "min-max".
[[nodiscard]] const char* name_of(ops::HgaSummary summary);

struct AttentionOptions {
  AttentionKind kind = AttentionKind::kDense;
  ops::HgaSettings hga;
  ops::HgaSummary summary = ops::HgaSummary::kMixed;

  /// Whether the keys and values of all tokens are attended.
  [[nodiscard]] bool is_dense() const { return kind == AttentionKind::kDense; }

  /// Tokens of which segments of a sequence in training hold a multiple: a page, or a chunk.
  [[nodiscard]] std::int64_t segment_unit() const {
    return is_dense() ? ops::kPageTokens : hga.chunk_tokens;
  }
};

/// What the paper uses: 8 chunks and 32 groups, chosen by a block of 64 queries for every query
/// head.
[[nodiscard]] ops::HgaSettings paper_hga_settings();

/// Throws Error kInvalidArgument, naming the option as the command line spells it, its value and
/// what it may be.
void check(const AttentionOptions& options);

}  // namespace longtune
