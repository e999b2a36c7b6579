#include "attention/routed_attention.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

// The most pages of history that one block of queries may see.
std::int64_t pages_of_a_block(const RoutedAttention::Shape& shape,
                              const AttentionOptions& options) {
  const std::int64_t pages = shape.context / ops::kPageTokens;
  if (options.is_dense()) {
    return pages;
  }
  const ops::HgaSettings& hga = options.hga;
  const std::int64_t lists = hga.per_query_head ? shape.Hq : shape.Hkv;
  const std::int64_t kept = std::min(pages, hga.first_chunks) + std::min(pages, hga.last_chunks);
  const std::int64_t own = hga.chunk_pages() - 1;  // of its chunk, where a cell begins inside that
  return std::min(pages, kept * hga.chunk_pages() + own + lists * hga.capacity());
}

TieredKvStore::Shape store_shape(const RoutedAttention::Shape& shape) {
  return {.L = shape.L,
          .Hkv = shape.Hkv,
          .D = shape.D,
          .dtype = shape.kv,
          .capacity = shape.context,
          .cell_tokens = shape.cell_tokens,
          .keep = shape.replays ? KvKeep::kOneLayer : KvKeep::kAllLayers};
}

// With a bank that is large enough, chosen where none is given.
KvTiers with_bank(const RoutedAttention::Shape& shape,
                  const AttentionOptions& options,
                  KvTiers tiers) {
  const std::int64_t page = ops::kv_page_bytes(shape.Hkv, shape.D, ops::kv_device_dtype(shape.kv));
  const TieredKvStore::Split split = TieredKvStore::split(store_shape(shape), tiers);
  const std::int64_t needed = std::min(split.banked, pages_of_a_block(shape, options)) * page;
  if (tiers.bank_bytes && *tiers.bank_bytes < needed) {
    fail(ErrorCode::kOutOfBudget,
         "attention",
         "--kv-bank {}: the pages that one block of queries may see need {}",
         format_bytes(*tiers.bank_bytes),
         format_bytes(needed));
  }
  if (!tiers.bank_bytes) {
    // What all blocks of a segment see is hardly more, and a page brought twice costs little unless
    // it comes from disk.
    tiers.bank_bytes = std::max(needed, split.spilled > 0 ? KvTiers::kUsualBank : 0);
  }
  return tiers;
}

// What `pieces` looks at lies on the device.
template <class T>
std::vector<T> to_host(const T* device, std::int64_t count) {
  std::vector<T> result(static_cast<std::size_t>(count));
  const ConstTensorView source{.data = reinterpret_cast<const std::byte*>(device)};
  copy_to_host(result.data(), source, count * std::int64_t{sizeof(T)});
  return result;
}

// The pages of history that the blocks of a cell see, one block at a time.
class History {
 public:
  History(const ops::Selection& selection, std::int64_t first_position, std::int64_t T)
      : selection_(selection), first_position_(first_position) {
    if (selection.capacity > 0) {
      const std::int64_t lists = selection.blocks(first_position, T) * selection.lists;
      counts_ = to_host(selection.counts, lists);
      groups_ = to_host(selection.groups, lists * selection.capacity);
    }
  }

  /// Calls body(page) for pages, some more than once, that queries at `position` of the block
  /// numbered `block` see.
  template <class Body>
  void of_block(std::int64_t block, std::int64_t position, Body&& body) const {
    const std::int64_t end = first_position_ / ops::kPageTokens;  // from here on pages are live
    const std::int64_t own = position / ops::kPageTokens;
    for (std::int64_t page = 0; page < std::min(end, selection_.sinks_end(own)); ++page) {
      body(page);
    }
    for (std::int64_t page = selection_.window_begin(own); page < std::min(end, own); ++page) {
      body(page);
    }
    for (std::int64_t list = block * selection_.lists; list < (block + 1) * selection_.lists;
         ++list) {
      for (std::int64_t i = 0; i < counts_[static_cast<std::size_t>(list)]; ++i) {
        const std::int64_t group =
            groups_[static_cast<std::size_t>(list * selection_.capacity + i)];
        const std::int64_t page = group * selection_.group_tokens / ops::kPageTokens;
        if (page < end) {
          body(page);
        }
      }
    }
  }

 private:
  const ops::Selection& selection_;
  std::int64_t first_position_;
  std::vector<std::int32_t> counts_;
  std::vector<std::int32_t> groups_;
};

}  // namespace

RoutedAttention::RoutedAttention(const Shape& shape,
                                 const AttentionOptions& options,
                                 const KvTiers& tiers,
                                 Arena& arena,
                                 Plan& plan)
    : shape_(shape), store_(store_shape(shape), with_bank(shape, options, tiers), arena, plan) {
  if (!options.is_dense()) {
    hga_.emplace(Hga::Shape{.L = shape.L,
                            .Hq = shape.Hq,
                            .Hkv = shape.Hkv,
                            .D = shape.D,
                            .kv = ops::kv_device_dtype(shape.kv),
                            .context = shape.context,
                            .cell_tokens = shape.cell_tokens,
                            .replays = shape.replays},
                 options,
                 arena,
                 plan);
  }
}

void RoutedAttention::load(std::span<const float> frequencies) {
  if (hga_) {
    hga_->load(frequencies);
  }
}

void RoutedAttention::begin_cell(std::int64_t first_position, std::int64_t T) {
  if (first_position == 0) {
    store_.reset();
  }
  first_position_ = first_position;
  T_ = T;
}

ops::KvPages RoutedAttention::live(std::int64_t layer) {
  return store_.live(layer, first_position_, T_);
}

void RoutedAttention::close(std::int64_t layer) {
  store_.close(layer, first_position_, T_);
}

ops::Selection RoutedAttention::chosen(std::int64_t layer) const {
  return hga_ ? hga_->chosen(layer) : ops::Selection{};
}

// Where groups are listed, a piece is a run of blocks; without them all queries are one piece,
// since each sees all that those before it see.
std::vector<RoutedAttention::Piece> RoutedAttention::pieces(const ops::Selection& selection) const {
  const History history(selection, first_position_, T_);
  const std::int64_t step = selection.capacity > 0 ? selection.block_queries : T_;
  const std::int64_t end = first_position_ + T_;
  std::vector<Piece> result(1);
  std::vector<char> is_seen(static_cast<std::size_t>(first_position_ / ops::kPageTokens));
  std::int64_t banked = 0;
  std::int64_t block = 0;
  for (std::int64_t position = first_position_; position < end; ++block) {
    const std::int64_t next =
        selection.capacity > 0 ? std::min(end, (position / step + 1) * step) : end;
    std::vector<std::int64_t> fresh;
    std::int64_t fresh_banked = 0;
    // Of a run of pages the last query sees all that another one does.
    history.of_block(block, selection.capacity > 0 ? position : end - 1, [&](std::int64_t page) {
      if (is_seen[static_cast<std::size_t>(page)] == 0) {
        is_seen[static_cast<std::size_t>(page)] = 1;
        fresh.push_back(page);
        fresh_banked += store_.needs_bank(page) ? 1 : 0;
      }
    });
    if (banked + fresh_banked > store_.bank_pages() && result.back().count > 0) {
      std::ranges::fill(is_seen, 0);
      result.push_back({.first = position - first_position_});
      banked = 0;
      --block;  // once more, for a piece of its own
      continue;
    }
    banked += fresh_banked;
    result.back().history.insert(result.back().history.end(), fresh.begin(), fresh.end());
    result.back().count += next - position;
    position = next;
  }
  return result;
}

ops::Selection RoutedAttention::part_of(const ops::Selection& all, std::int64_t first) const {
  ops::Selection part = all;
  if (all.capacity > 0) {
    const std::int64_t skipped =
        (first_position_ + first) / all.block_queries - first_position_ / all.block_queries;
    part.groups += skipped * all.lists * all.capacity;
    part.counts += skipped * all.lists;
    part.seen += first * all.lists * all.words();
  }
  return part;
}

void RoutedAttention::run_forward(std::int64_t layer,
                                  const ops::Selection& selection,
                                  const ops::AttentionForward& args) {
  for (const Piece& piece : pieces(selection)) {
    const TieredKvStore::Pin pin = store_.pin(layer, piece.history, first_position_, T_);
    ops::AttentionForward part = args;
    part.out = args.out.rows(piece.first, piece.count);
    part.lse = args.lse.rows(piece.first, piece.count);
    part.q = args.q.rows(piece.first, piece.count);
    part.kv = pin.pages();
    part.first_position = first_position_ + piece.first;
    part.selection = part_of(selection, piece.first);
    ops::attention_forward(part);
  }
}

ops::Selection RoutedAttention::choose(std::int64_t layer, const ConstTensorView& q) {
  const TieredKvStore::Pin pin =
      store_.pin(layer, hga_->pages_to_close(first_position_, T_), first_position_, T_);
  return hga_->choose(layer, q, pin.pages(), first_position_);
}

void RoutedAttention::forward(std::int64_t layer, ops::AttentionForward args) {
  ops::Selection selection;
  if (hga_) {
    selection = choose(layer, args.q);
  }
  run_forward(layer, selection, args);
  store_.retire(layer, first_position_, T_);
  if (layer + 1 < shape_.L) {  // its sinks and its window are known already
    ops::Selection next = selection;
    next.capacity = 0;
    next.lists = 0;
    prefetch(layer + 1, next);
  }
}

void RoutedAttention::recompute(std::int64_t layer, const ops::AttentionForward& args) {
  run_forward(layer, chosen(layer), args);
}

void RoutedAttention::backward(std::int64_t layer, ops::AttentionBackward args) {
  const ops::Selection selection = chosen(layer);
  const std::vector<Piece> all = pieces(selection);
  for (std::size_t i = all.size(); i-- > 0;) {
    const Piece& piece = all[i];
    const TieredKvStore::Pin pin = store_.pin(layer, piece.history, first_position_, T_);
    ops::AttentionBackward part = args;
    for (TensorView* view : {&part.dq, &part.delta}) {
      *view = view->rows(piece.first, piece.count);
    }
    for (ConstTensorView* view : {&part.dout, &part.out, &part.lse, &part.q}) {
      *view = view->rows(piece.first, piece.count);
    }
    part.kv = pin.pages();
    part.first_position = first_position_ + piece.first;
    part.live_begin = first_position_;
    part.begins = i + 1 == all.size();
    part.ends = i == 0;
    part.selection = part_of(selection, piece.first);
    ops::attention_backward(part);
  }
  if (layer > 0) {
    prefetch(layer - 1, chosen(layer - 1));
  }
}

void RoutedAttention::prefetch(std::int64_t layer, const ops::Selection& selection) {
  if (store_.bank_pages() > 0 && first_position_ > 0) {
    store_.prefetch(layer, pieces(selection).front().history);
  }
}

}  // namespace longtune
