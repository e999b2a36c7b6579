#include "ops/hga_route.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <vector>

#include "ops/cpu/hga_scores.h"
#include "ops/cpu/top_scores.h"

namespace longtune::ops::cpu {
namespace {

using Ids = std::vector<std::int32_t>;

// Memory of one thread that grows to what is needed.
struct Scratch {
  std::vector<float> chunk_scores;  // (queries, chunks)
  std::vector<float> group_scores;  // (queries, candidate chunks, groups of a chunk)
  std::vector<Ids> own_chunks;      // a query's best chunks
  Ids candidates;                   // chunks whose groups are scored, ascending
  std::vector<SummaryRun> runs;     // their groups
  std::vector<std::int32_t> place;  // of a chunk among the candidates
  std::vector<std::int32_t> slots;  // of a scored group in the list, or -1
  TopScores top;
  std::vector<float> eligible;  // scores of groups that may be taken
  Ids eligible_ids;             // which they are
  Ids asked, fresh;
};

// Routing of one block of queries for one list.
class RouteBlock {
 public:
  RouteBlock(const HgaRoute& args,
             const QuerySet& set,
             const QueryBlock& block,
             BlockScores& scores,
             const std::vector<std::int32_t>& full_before,
             Scratch& scratch)
      : args_(args),
        set_(set),
        block_(block),
        scores_(scores),
        full_before_(full_before),
        scratch_(scratch),
        list_(s_.per_query_head ? block.head : block.kv_head),
        begin_(set.selection.sinks_end(block.page) / s_.chunk_pages()),
        chunks_(set.selection.window_begin(block.page) / s_.chunk_pages() - begin_),
        per_chunk_(s_.chunk_groups()) {}

  void run() {
    begin();
    if (full_ && sees_list()) {
      clear_seen();
      show_list_to_all();
    } else if (chunks_ > 0) {
      score_chunks();
      s_.routing == HgaRouting::kCausal ? route_causally() : route_block();
    } else {
      clear_seen();
    }
    end();
  }

 private:
  [[nodiscard]] bool sees_list() const {
    return s_.routing == HgaRouting::kCausal && s_.sight == HgaSight::kList;
  }

  // A list's place among those of all blocks.
  [[nodiscard]] std::int64_t list_index() const {
    const std::int64_t number =
        block_.position(0) / s_.block_queries - set_.first_position / s_.block_queries;
    return number * set_.selection.lists + list_;
  }

  void begin() {
    groups_ = args_.groups + list_index() * s_.capacity();
    if (s_.routing == HgaRouting::kCausal && block_.position(0) % s_.block_queries != 0) {
      count_ = args_.counts[list_index()];
      full_ = full_before_[static_cast<std::size_t>(list_)] != 0;
    }
  }

  void end() const {
    args_.counts[list_index()] = static_cast<std::int32_t>(count_);
    const bool last = block_.position(block_.rows - 1) + 1 == set_.end();
    if (s_.routing == HgaRouting::kCausal && last) {
      std::copy_n(groups_, count_, args_.open.groups + list_ * s_.capacity());
      args_.open.counts[list_] = static_cast<std::int32_t>(count_);
      args_.open.full[list_] = full_ ? 1 : 0;
    }
  }

  [[nodiscard]] std::uint64_t* seen(std::int64_t query) const {
    const std::int64_t t = block_.position(0) - set_.first_position + query;
    return args_.seen + (t * set_.selection.lists + list_) * set_.selection.words();
  }

  void clear_seen() const {
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      std::fill_n(seen(query), set_.selection.words(), std::uint64_t{0});
    }
  }

  void score_chunks() {
    scratch_.chunk_scores.resize(static_cast<std::size_t>(scores_.queries() * chunks_));
    const SummaryRun run{.first = block_.kv_head * args_.chunks.dim(1) + begin_, .count = chunks_};
    scores_.score(args_.chunks, {&run, 1}, scratch_.chunk_scores.data(), chunks_);
  }

  // The best chunks by their score in `scores`, counted from begin_.
  void best_chunks(const float* scores, Ids& ids) const {
    scratch_.top.find({scores, static_cast<std::size_t>(chunks_)}, s_.topk_chunks, ids);
  }

  [[nodiscard]] const Ids& own_chunks(std::int64_t query) const {
    return scratch_.own_chunks[static_cast<std::size_t>(query)];
  }

  void choose_own_chunks() {
    scratch_.own_chunks.resize(static_cast<std::size_t>(scores_.queries()));
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      best_chunks(scratch_.chunk_scores.data() + query * chunks_,
                  scratch_.own_chunks[static_cast<std::size_t>(query)]);
    }
  }

  // Scores of the groups of all chunks that some query or the block chose, marked in `place`.
  void score_groups() {
    scratch_.candidates.clear();
    for (std::int64_t i = 0; i < chunks_; ++i) {
      if (scratch_.place[static_cast<std::size_t>(i)] >= 0) {
        scratch_.place[static_cast<std::size_t>(i)] =
            static_cast<std::int32_t>(scratch_.candidates.size());
        scratch_.candidates.push_back(static_cast<std::int32_t>(i));
      }
    }
    const auto count = static_cast<std::int64_t>(scratch_.candidates.size());
    stride_ = count * per_chunk_;
    scratch_.group_scores.resize(static_cast<std::size_t>(scores_.queries() * stride_));
    scratch_.runs.clear();
    const std::int64_t first_chunk = block_.kv_head * args_.chunks.dim(1) + begin_;
    for (const std::int32_t candidate : scratch_.candidates) {
      scratch_.runs.push_back(
          {.first = (first_chunk + candidate) * per_chunk_, .count = per_chunk_});
    }
    scores_.score(args_.group_summaries, scratch_.runs, scratch_.group_scores.data(), stride_);
  }

  void mark(const Ids& chunks) {
    for (const std::int32_t chunk : chunks) {
      scratch_.place[static_cast<std::size_t>(chunk)] = 0;
    }
  }

  // Below, groups are counted among those that are scored: group g of candidate c is
  // c * per_chunk_ + g, which ascends with the position.
  [[nodiscard]] std::int32_t place_of(std::int32_t chunk) const {
    return scratch_.place[static_cast<std::size_t>(chunk)];
  }

  // The group's number in the sequence.
  [[nodiscard]] std::int32_t number_of(std::int32_t scored) const {
    const auto chunk = scratch_.candidates[static_cast<std::size_t>(scored / per_chunk_)];
    return static_cast<std::int32_t>((begin_ + chunk) * per_chunk_ + scored % per_chunk_);
  }

  [[nodiscard]] std::int32_t& slot_of(std::int32_t scored) const {
    return scratch_.slots[static_cast<std::size_t>(scored)];
  }

  // Where in the list the scored groups are.
  void find_slots() const {
    scratch_.slots.assign(static_cast<std::size_t>(stride_), -1);
    for (std::int64_t slot = 0; slot < count_; ++slot) {
      const std::int64_t chunk = groups_[slot] / per_chunk_ - begin_;
      const std::int32_t place =
          chunk >= 0 && chunk < chunks_ ? place_of(static_cast<std::int32_t>(chunk)) : -1;
      if (place >= 0) {
        slot_of(static_cast<std::int32_t>(place * per_chunk_ + groups_[slot] % per_chunk_)) =
            static_cast<std::int32_t>(slot);
      }
    }
  }

  // The best `k` groups of some chunks by a query's scores; of those in the list alone where
  // `listed`.
  void best_groups(
      const Ids& chunks, std::int64_t k, const float* scores, bool listed, Ids& groups) const {
    scratch_.eligible.clear();
    scratch_.eligible_ids.clear();
    for (const std::int32_t chunk : chunks) {
      const auto first = static_cast<std::int32_t>(place_of(chunk) * per_chunk_);
      for (std::int32_t scored = first; scored < first + per_chunk_; ++scored) {
        if (!listed || slot_of(scored) >= 0) {
          scratch_.eligible.push_back(scores[scored]);
          scratch_.eligible_ids.push_back(scored);
        }
      }
    }
    scratch_.top.find(scratch_.eligible, k, groups);
    for (std::int32_t& group : groups) {
      group = scratch_.eligible_ids[static_cast<std::size_t>(group)];
    }
  }

  void show(std::int64_t query, const Ids& asked) const {
    std::uint64_t* bits = seen(query);
    for (const std::int32_t scored : asked) {
      const std::int32_t slot = slot_of(scored);
      if (slot >= 0) {
        bits[slot / 64] |= std::uint64_t{1} << (slot % 64);
      }
    }
  }

  void show_list(std::int64_t query) const {
    std::uint64_t* bits = seen(query);
    for (std::int64_t slot = 0; slot < count_; ++slot) {
      bits[slot / 64] |= std::uint64_t{1} << (slot % 64);
    }
  }

  void show_list_to_all() const {
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      show_list(query);
    }
  }

  void route_causally() {
    choose_own_chunks();
    scratch_.place.assign(static_cast<std::size_t>(chunks_), -1);
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      mark(own_chunks(query));
    }
    score_groups();
    clear_seen();
    find_slots();
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      const float* scores = scratch_.group_scores.data() + query * stride_;
      if (!full_) {
        ask(query, scores);
      }
      if (s_.sight == HgaSight::kList) {
        show_list(query);
        continue;
      }
      if (full_) {
        best_groups(own_chunks(query), s_.topk_groups, scores, true, scratch_.asked);
      }
      show(query, scratch_.asked);
    }
  }

  // Opens what a query asks for and the list does not have, where it fits.
  void ask(std::int64_t query, const float* scores) {
    best_groups(own_chunks(query), s_.topk_groups, scores, false, scratch_.asked);
    Ids& fresh = scratch_.fresh;
    fresh.clear();
    std::ranges::copy_if(scratch_.asked, std::back_inserter(fresh), [&](std::int32_t scored) {
      return slot_of(scored) < 0;
    });
    const std::int64_t room = s_.union_cap - count_;
    full_ = std::ssize(fresh) > room;
    if (full_ && s_.sight == HgaSight::kList) {
      keep_best(fresh, room, scores);
    }
    if (!full_ || s_.sight == HgaSight::kList) {
      open(fresh);
    }
  }

  // Leaves the best `k` of some groups, in their order.
  void keep_best(Ids& groups, std::int64_t k, const float* scores) const {
    scratch_.eligible.clear();
    for (const std::int32_t scored : groups) {
      scratch_.eligible.push_back(scores[scored]);
    }
    Ids& best = scratch_.eligible_ids;
    best.clear();
    if (k > 0) {
      scratch_.top.find(scratch_.eligible, k, best);
    }
    for (std::int32_t& place : best) {
      place = groups[static_cast<std::size_t>(place)];
    }
    groups.swap(best);
  }

  void open(const Ids& fresh) {
    for (const std::int32_t scored : fresh) {
      slot_of(scored) = static_cast<std::int32_t>(count_);
      groups_[count_++] = number_of(scored);
    }
  }

  // The largest of each column of (queries, columns).
  [[nodiscard]] std::vector<float> largest(const std::vector<float>& scores,
                                           std::int64_t columns) const {
    std::vector<float> result(scores.begin(), scores.begin() + columns);
    for (std::int64_t query = 1; query < scores_.queries(); ++query) {
      for (std::int64_t i = 0; i < columns; ++i) {
        float& best = result[static_cast<std::size_t>(i)];
        best = std::max(best, scores[static_cast<std::size_t>(query * columns + i)]);
      }
    }
    return result;
  }

  void route_block() {
    choose_own_chunks();
    Ids chunks;
    best_chunks(largest(scratch_.chunk_scores, chunks_).data(), chunks);
    scratch_.place.assign(static_cast<std::size_t>(chunks_), -1);
    mark(chunks);
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      mark(own_chunks(query));
    }
    score_groups();
    clear_seen();
    find_slots();
    Ids listed;
    best_groups(
        chunks, s_.topk_groups, largest(scratch_.group_scores, stride_).data(), false, listed);
    open(listed);
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      if (query > 0) {
        std::copy_n(seen(query - 1), set_.selection.words(), seen(query));
      }
      best_groups(own_chunks(query),
                  std::max<std::int64_t>(1, s_.topk_groups / 2),
                  scratch_.group_scores.data() + query * stride_,
                  false,
                  scratch_.asked);
      show(query, scratch_.asked);
    }
  }

  const HgaRoute& args_;
  const HgaSettings& s_ = args_.settings;
  const QuerySet& set_;
  const QueryBlock& block_;
  BlockScores& scores_;
  const std::vector<std::int32_t>& full_before_;  // (lists) of the open lists, before this call
  Scratch& scratch_;
  std::int64_t list_;
  std::int64_t begin_;   ///< first chunk that may be routed to
  std::int64_t chunks_;  ///< how many may
  std::int64_t per_chunk_;
  std::int64_t stride_ = 0;  ///< groups scored a query
  std::int32_t* groups_ = nullptr;
  std::int64_t count_ = 0;
  bool full_ = false;
};

// The first block goes on with the open lists, which the last one will overwrite.
std::vector<std::int32_t> continue_lists(const HgaRoute& args) {
  const HgaSettings& s = args.settings;
  if (s.routing != HgaRouting::kCausal || args.first_position % s.block_queries == 0) {
    return {};
  }
  const std::int64_t lists = args.lists();
  std::copy_n(args.open.groups, lists * s.capacity(), args.groups);
  std::copy_n(args.open.counts, lists, args.counts);
  return {args.open.full, args.open.full + lists};
}

// The blocks of queries that share lists, for every run of heads; those of a chunk's first page may
// reach into its next one.
std::vector<QueryBlock> blocks_of(const QuerySet& set) {
  const std::int64_t heads = set.heads_together();
  const std::int64_t size = set.selection.block_queries;
  std::vector<QueryBlock> blocks;
  for (std::int64_t position = set.first_position; position < set.end();) {
    const std::int64_t next = std::min(set.end(), (position / size + 1) * size);
    const std::int64_t page = position / kPageTokens;
    for (std::int64_t run = 0; run < set.head_runs(); ++run) {
      blocks.push_back({.kv_head = run * heads / (set.Hq / set.kv.Hkv),
                        .head = run * heads,
                        .heads = heads,
                        .page = page,
                        .first = (position - page * kPageTokens) * heads,
                        .rows = (next - position) * heads});
    }
    position = next;
  }
  return blocks;
}

}  // namespace

std::int64_t hga_route(const HgaRoute& args) {
  if (args.q.dim(0) == 0) {
    return 0;
  }
  const QuerySet set{.kv = {.Hkv = args.chunks.dim(0), .D = args.q.dim(2)},
                     .T = args.q.dim(0),
                     .Hq = args.q.dim(1),
                     .first_position = args.first_position,
                     .selection = args.selection()};
  const std::vector<QueryBlock> blocks = blocks_of(set);
  const AttentionTiles& tiles = attention_tiles(selected_isa());
  const std::int64_t width = args.chunks.dim(2);
  const ThreadScratch memory(BlockScores::floats(set, width, most_rows(blocks)));
  const std::vector<std::int32_t> full = continue_lists(args);
  std::int64_t products = 0;
  std::exception_ptr failure;  // scratch memory grows inside, and no exception may leave the region
#pragma omp parallel reduction(+ : products)
  {
    Scratch scratch;
#pragma omp for schedule(dynamic, 1)
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      try {
        BlockScores scores(set, blocks[i], args.q, width, tiles, memory.mine());
        RouteBlock(args, set, blocks[i], scores, full, scratch).run();
        products += scores.products();
      } catch (...) {
#pragma omp critical(hga_route_failure)
        failure = std::current_exception();
      }
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  return products;
}

}  // namespace longtune::ops::cpu
