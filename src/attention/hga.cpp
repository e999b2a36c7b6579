#include "attention/hga.h"

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

constexpr const char* kSummaries = "summaries";
constexpr const char* kSelections = "selections";

// Where the parts of one layer's selection begin, and its end.
struct SelectionLayout {
  std::int64_t groups, counts, seen, bytes;

  SelectionLayout(std::int64_t blocks, std::int64_t T, std::int64_t lists, std::int64_t capacity) {
    const std::int64_t words = (capacity + 63) / 64;
    groups = 0;
    counts = round_up(blocks * lists * capacity * 4, Arena::kAlignment);
    seen = counts + round_up(blocks * lists * 4, Arena::kAlignment);
    bytes = seen + round_up(T * lists * words * 8, Arena::kAlignment);
  }
};

// Integers of one layer's open lists: groups, counts, and whether they are full.
std::int64_t open_size(std::int64_t lists, std::int64_t capacity) {
  return lists * (capacity + 2);
}

}  // namespace

Hga::Hga(const Shape& shape, const AttentionOptions& options, Arena& arena, Plan& plan)
    : shape_(shape),
      options_(options),
      chunk_capacity_(std::max<std::int64_t>(1, shape.context / options.hga.chunk_tokens)),
      lists_(options.hga.per_query_head ? shape.Hq : shape.Hkv),
      closed_(static_cast<std::size_t>(shape.L)),
      chosen_(static_cast<std::size_t>(shape.L)) {
  const ops::HgaSettings& hga = options.hga;
  turns_ = arena.take(kSummaries, DType::kF32, {2, hga.chunk_tokens, shape.D / 2});
  const std::int64_t S = ops::summary_width(options.summary, shape.D);
  chunks_ = arena.take(kSummaries, shape.kv, {shape.L * shape.Hkv, chunk_capacity_, S});
  groups_ = chunks_;
  groups_.data = nullptr;
  groups_.shape[1] = chunk_capacity_ * hga.chunk_groups();
  group_memory_ = HostMemory("group summaries", groups_.bytes(), arena, plan);
  groups_.data = group_memory_.data();
  open_ = arena.take_bytes(kSelections, shape.L * open_size(lists_, hga.capacity()) * 4);
  // A cell may begin inside a block.
  const std::int64_t blocks = shape.cell_tokens / hga.block_queries + 2;
  const SelectionLayout layout(blocks, shape.cell_tokens, lists_, hga.capacity());
  selections_ = arena.take_bytes(kSelections, layout.bytes * (shape.replays ? shape.L : 1));
}

void Hga::load(std::span<const float> frequencies) {
  const std::vector<float> turns =
      ops::hga_turns(frequencies, options_.summary, options_.hga.chunk_tokens);
  copy_to_device(turns_, turns.data(), turns_.bytes());
}

ops::HgaRoute Hga::route(std::int64_t layer) const {
  const ops::HgaSettings& hga = options_.hga;
  const std::int64_t capacity = hga.capacity();
  const std::int64_t blocks = shape_.cell_tokens / hga.block_queries + 2;
  const SelectionLayout layout(blocks, shape_.cell_tokens, lists_, capacity);
  std::byte* const at = selections_ + (shape_.replays ? layer : 0) * layout.bytes;
  auto* const open = reinterpret_cast<std::int32_t*>(open_) + layer * open_size(lists_, capacity);
  const auto layer_rows = [&](const TensorView& summaries) {
    return summaries.rows(layer * shape_.Hkv, shape_.Hkv);
  };
  return {.groups = reinterpret_cast<std::int32_t*>(at + layout.groups),
          .counts = reinterpret_cast<std::int32_t*>(at + layout.counts),
          .seen = reinterpret_cast<std::uint64_t*>(at + layout.seen),
          .open = {.groups = open,
                   .counts = open + lists_ * capacity,
                   .full = open + lists_ * (capacity + 1)},
          .chunks = layer_rows(chunks_),
          .group_summaries = layer_rows(groups_),
          .settings = hga};
}

void Hga::close_chunks(std::int64_t layer, const ops::KvPages& kv, std::int64_t first_position) {
  std::int64_t& closed = closed_[static_cast<std::size_t>(layer)];
  if (first_position == 0) {
    closed = 0;
  }
  const std::int64_t end = kv.tokens / options_.hga.chunk_tokens;
  if (end > closed) {
    ops::hga_summaries({.summary = options_.summary,
                        .chunks = chunks_.rows(layer * shape_.Hkv, shape_.Hkv),
                        .groups = groups_.rows(layer * shape_.Hkv, shape_.Hkv),
                        .kv = kv,
                        .turns = turns_,
                        .chunk_tokens = options_.hga.chunk_tokens,
                        .group_tokens = options_.hga.group_tokens,
                        .first_chunk = closed,
                        .end_chunk = end});
    closed = end;
  }
}

std::vector<std::int32_t> Hga::pages_to_close(std::int64_t first_position, std::int64_t T) const {
  const std::int64_t chunk = options_.hga.chunk_tokens;
  const std::int64_t begin = first_position - first_position % chunk;
  std::vector<std::int32_t> pages;
  if (begin + chunk <= first_position + T) {
    for (std::int64_t page = begin / ops::kPageTokens; page < first_position / ops::kPageTokens;
         ++page) {
      pages.push_back(static_cast<std::int32_t>(page));
    }
  }
  return pages;
}

ops::Selection Hga::choose(std::int64_t layer,
                           const ConstTensorView& q,
                           const ops::KvPages& kv,
                           std::int64_t first_position) {
  close_chunks(layer, kv, first_position);
  ops::HgaRoute args = route(layer);
  args.q = q;
  args.first_position = first_position;
  ops::hga_route(args);
  return chosen_[static_cast<std::size_t>(layer)] = args.selection();
}

ops::Selection Hga::chosen(std::int64_t layer) const {
  if (!shape_.replays) {
    fail(ErrorCode::kInternal, "hga", "selections of a model that only reads are not kept");
  }
  return chosen_[static_cast<std::size_t>(layer)];
}

}  // namespace longtune
