#include "ops/hga_route.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/hga_scores.h"

namespace longtune::ops::cpu {
namespace {

using Ids = std::vector<std::int32_t>;

// Brings the `k` of `ids` with the highest scores, of equal ones the lower, to the front in
// ascending order and drops the others.
template <class Score>
void keep_best(Ids& ids, std::int64_t k, Score score) {
  if (static_cast<std::int64_t>(ids.size()) > k) {
    const auto better = [&](std::int32_t a, std::int32_t b) {
      const float left = score(a);
      const float right = score(b);
      return left > right || (left == right && a < b);
    };
    std::nth_element(ids.begin(), ids.begin() + k, ids.end(), better);
    ids.resize(static_cast<std::size_t>(k));
  }
  std::sort(ids.begin(), ids.end());
}

// Memory of one thread that grows to what is needed.
struct Scratch {
  std::vector<std::int32_t> full_before;  // (lists) of the open lists, before this call
  std::vector<float> chunk_scores;        // (queries, chunks)
  std::vector<float> group_scores;        // (queries, candidate chunks, groups of a chunk)
  std::vector<Ids> own_chunks;            // a query's best chunks
  Ids candidates;                         // chunks whose groups are scored, ascending
  std::vector<std::int32_t> place;        // of a chunk among the candidates
  Ids all, asked, fresh;
};

// Routing of one block of queries for one list.
class RouteBlock {
 public:
  RouteBlock(const HgaRoute& args,
             const QuerySet& set,
             const QueryBlock& block,
             const BlockScores& scores,
             Scratch& scratch)
      : args_(args),
        set_(set),
        block_(block),
        scores_(scores),
        scratch_(scratch),
        list_(s_.per_query_head ? block.head : block.kv_head),
        begin_(set.selection.sinks_end(block.page)),
        chunks_(std::max<std::int64_t>(0, set.selection.window_begin(block.page) - begin_)),
        per_chunk_(kPageTokens / s_.group_tokens) {}

  void run() {
    begin();
    if (chunks_ > 0) {
      score_chunks();
      s_.routing == HgaRouting::kCausal ? route_causally() : route_block();
    } else {
      clear_seen();
    }
    end();
  }

 private:
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
      full_ = scratch_.full_before[static_cast<std::size_t>(list_)] != 0;
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
    scores_.score_run(args_.chunks,
                      block_.kv_head * args_.chunks.dim(1) + begin_,
                      chunks_,
                      scratch_.chunk_scores.data(),
                      chunks_);
  }

  // Chunks by their score in `scores`, counted from begin_.
  void best_chunks(const float* scores, Ids& ids) const {
    ids.resize(static_cast<std::size_t>(chunks_));
    for (std::int64_t i = 0; i < chunks_; ++i) {
      ids[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
    }
    keep_best(ids, s_.topk_chunks, [&](std::int32_t id) { return scores[id]; });
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
    for (std::int64_t i = 0; i < count;) {
      std::int64_t run = 1;  // neighbours are scored together
      const std::int32_t first = scratch_.candidates[static_cast<std::size_t>(i)];
      while (i + run < count &&
             scratch_.candidates[static_cast<std::size_t>(i + run)] == first + run) {
        ++run;
      }
      const std::int64_t row = (block_.kv_head * args_.chunks.dim(1) + begin_ + first) * per_chunk_;
      scores_.score_run(args_.group_summaries,
                        row,
                        run * per_chunk_,
                        scratch_.group_scores.data() + i * per_chunk_,
                        stride_);
      i += run;
    }
  }

  void mark(const Ids& chunks) {
    for (const std::int32_t chunk : chunks) {
      scratch_.place[static_cast<std::size_t>(chunk)] = 0;
    }
  }

  // Groups of the sequence that the chunks hold.
  void groups_of(const Ids& chunks, Ids& groups) const {
    groups.clear();
    for (const std::int32_t chunk : chunks) {
      for (std::int64_t g = 0; g < per_chunk_; ++g) {
        groups.push_back(static_cast<std::int32_t>((begin_ + chunk) * per_chunk_ + g));
      }
    }
  }

  // Where a group's score lies among a query's.
  [[nodiscard]] std::int64_t score_index(std::int32_t group) const {
    const std::int64_t chunk = group / per_chunk_ - begin_;
    return scratch_.place[static_cast<std::size_t>(chunk)] * per_chunk_ + group % per_chunk_;
  }

  void keep_best_groups(Ids& groups, std::int64_t k, const float* scores) const {
    keep_best(groups, k, [&](std::int32_t group) { return scores[score_index(group)]; });
  }

  [[nodiscard]] std::int64_t slot_of(std::int32_t group) const {
    return std::find(groups_, groups_ + count_, group) - groups_;
  }

  void show(std::int64_t query, const Ids& asked) const {
    std::uint64_t* bits = seen(query);
    for (const std::int32_t group : asked) {
      const std::int64_t slot = slot_of(group);
      if (slot < count_) {
        bits[slot / 64] |= std::uint64_t{1} << (slot % 64);
      }
    }
  }

  void route_causally() {
    choose_own_chunks();
    scratch_.place.assign(static_cast<std::size_t>(chunks_), -1);
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      mark(scratch_.own_chunks[static_cast<std::size_t>(query)]);
    }
    score_groups();
    clear_seen();
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      route_row(query, scratch_.group_scores.data() + query * stride_);
    }
  }

  void route_row(std::int64_t query, const float* scores) {
    Ids& asked = scratch_.asked;
    groups_of(scratch_.own_chunks[static_cast<std::size_t>(query)], scratch_.all);
    asked = scratch_.all;
    keep_best_groups(asked, s_.topk_groups, scores);
    scratch_.fresh.clear();
    for (const std::int32_t group : asked) {
      if (slot_of(group) == count_) {
        scratch_.fresh.push_back(group);
      }
    }
    const auto fresh = static_cast<std::int64_t>(scratch_.fresh.size());
    full_ = full_ || count_ + fresh > s_.union_cap;
    if (full_) {
      asked = scratch_.all;
      std::erase_if(asked, [&](std::int32_t group) { return slot_of(group) == count_; });
      keep_best_groups(asked, s_.topk_groups, scores);
    } else {
      std::copy_n(scratch_.fresh.data(), fresh, groups_ + count_);
      count_ += fresh;
    }
    show(query, asked);
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
      mark(scratch_.own_chunks[static_cast<std::size_t>(query)]);
    }
    score_groups();
    clear_seen();
    Ids listed;
    groups_of(chunks, listed);
    keep_best_groups(listed, s_.topk_groups, largest(scratch_.group_scores, stride_).data());
    count_ = static_cast<std::int64_t>(listed.size());
    std::copy(listed.begin(), listed.end(), groups_);
    for (std::int64_t query = 0; query < scores_.queries(); ++query) {
      if (query > 0) {
        std::copy_n(seen(query - 1), set_.selection.words(), seen(query));
      }
      Ids& asked = scratch_.asked;
      groups_of(scratch_.own_chunks[static_cast<std::size_t>(query)], asked);
      keep_best_groups(asked,
                       std::max<std::int64_t>(1, s_.topk_groups / 2),
                       scratch_.group_scores.data() + query * stride_);
      show(query, asked);
    }
  }

  const HgaRoute& args_;
  const HgaSettings& s_ = args_.settings;
  const QuerySet& set_;
  const QueryBlock& block_;
  const BlockScores& scores_;
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

}  // namespace

void hga_route(const HgaRoute& args) {
  if (args.q.dim(0) == 0) {
    return;
  }
  const QuerySet set{.kv = {.Hkv = args.chunks.dim(0), .D = args.q.dim(2)},
                     .T = args.q.dim(0),
                     .Hq = args.q.dim(1),
                     .first_position = args.first_position,
                     .selection = args.selection()};
  std::vector<QueryBlock> blocks;
  for (std::int64_t page = set.first_page(); page < set.end_page(); ++page) {
    for (std::int64_t run = 0; run < set.head_runs(); ++run) {
      append_blocks(set, run, page, set.selection_rows(), blocks);
    }
  }
  const AttentionTiles& tiles = attention_tiles(selected_isa());
  const ThreadScratch memory(BlockScores::floats(set, most_rows(blocks)));
  const std::vector<std::int32_t> full = continue_lists(args);
#pragma omp parallel
  {
    Scratch scratch{.full_before = full};
#pragma omp for schedule(dynamic, 1)
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const BlockScores scores(set, blocks[i], args.q, tiles, memory.mine());
      RouteBlock(args, set, blocks[i], scores, scratch).run();
    }
  }
}

}  // namespace longtune::ops::cpu
