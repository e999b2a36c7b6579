#include "ops/hga_route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "ops/ref/element.h"

namespace longtune::ops::ref {
namespace {

using Ids = std::vector<std::int64_t>;

// One list: a run of query heads, and the KV head that they read.
struct Heads {
  std::int64_t list, first, count, kv;
};

class Router {
 public:
  Router(const HgaRoute& args, const Heads& heads) : args_(args), heads_(heads) {}

  void run() {
    const std::int64_t B = s_.block_queries;
    const std::int64_t end = args_.first_position + args_.q.dim(0);
    for (std::int64_t position = args_.first_position; position < end;) {
      const std::int64_t next = std::min(end, position / B * B + B);
      begin_block(position);
      if (s_.routing == HgaRouting::kCausal) {
        for (std::int64_t p = position; p < next; ++p) {
          causal_row(p);
        }
      } else {
        block_rows(position, next);
      }
      end_block(position);
      position = next;
    }
  }

 private:
  [[nodiscard]] double score(std::int64_t position,
                             const ConstTensorView& summaries,
                             std::int64_t row) const {
    const auto D = args_.q.dim(2);
    const auto Hq = args_.q.dim(1);
    const std::int64_t t = position - args_.first_position;
    double best = -std::numeric_limits<double>::infinity();
    for (std::int64_t h = heads_.first; h < heads_.first + heads_.count; ++h) {
      double sum = 0;
      const std::int64_t S = summaries.dim(2);
      const std::int64_t at = (heads_.kv * summaries.dim(1) + row) * S;
      for (std::int64_t d = 0; d < D; ++d) {
        const double value = get(args_.q, (t * Hq + h) * D + d);
        sum += value * get(summaries, at + (S > D && value < 0 ? D : 0) + d);
      }
      best = sum > best ? sum : best;
    }
    return best;
  }

  // The `k` of `ids` with the highest scores, in order of position.
  template <class Score>
  static Ids best_of(Ids ids, std::int64_t k, Score score) {
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return score(a) > score(b); });
    ids.resize(std::min<std::size_t>(ids.size(), static_cast<std::size_t>(k)));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  [[nodiscard]] Ids chunks_of(std::int64_t position) const {
    const std::int64_t page = position / kPageTokens;
    const Selection selection = args_.selection();
    const std::int64_t begin = selection.sinks_end(page) / s_.chunk_pages();
    const std::int64_t end = selection.window_begin(page) / s_.chunk_pages();
    Ids ids(static_cast<std::size_t>(end - begin));
    std::iota(ids.begin(), ids.end(), begin);
    return ids;
  }

  [[nodiscard]] Ids groups_of(const Ids& chunks) const {
    const std::int64_t per_chunk = s_.chunk_groups();
    Ids groups;
    for (const std::int64_t chunk : chunks) {
      for (std::int64_t g = 0; g < per_chunk; ++g) {
        groups.push_back(chunk * per_chunk + g);
      }
    }
    return groups;
  }

  [[nodiscard]] auto by_chunk(std::int64_t position) const {
    return [this, position](std::int64_t id) { return score(position, args_.chunks, id); };
  }

  [[nodiscard]] auto by_group(std::int64_t position) const {
    return [this, position](std::int64_t id) { return score(position, args_.group_summaries, id); };
  }

  void begin_block(std::int64_t position) {
    open_.clear();
    full_ = false;
    if (s_.routing == HgaRouting::kCausal && position % s_.block_queries != 0) {
      const auto* kept = args_.open.groups + heads_.list * s_.capacity();
      open_.assign(kept, kept + args_.open.counts[heads_.list]);
      full_ = args_.open.full[heads_.list] != 0;
    }
  }

  void end_block(std::int64_t position) {
    const std::int64_t block =
        position / s_.block_queries - args_.first_position / s_.block_queries;
    const std::int64_t list = block * args_.lists() + heads_.list;
    std::copy(open_.begin(), open_.end(), args_.groups + list * s_.capacity());
    args_.counts[list] = static_cast<std::int32_t>(open_.size());
    if (s_.routing == HgaRouting::kCausal) {
      std::copy(open_.begin(), open_.end(), args_.open.groups + heads_.list * s_.capacity());
      args_.open.counts[heads_.list] = static_cast<std::int32_t>(open_.size());
      args_.open.full[heads_.list] = full_ ? 1 : 0;
    }
  }

  void show(std::int64_t position, const std::set<std::int64_t>& groups) {
    const std::int64_t words = args_.selection().words();
    const std::int64_t t = position - args_.first_position;
    auto* seen = args_.seen + (t * args_.lists() + heads_.list) * words;
    std::fill_n(seen, words, std::uint64_t{0});
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (groups.contains(open_[i])) {
        seen[i / 64] |= std::uint64_t{1} << (i % 64);
      }
    }
  }

  void causal_row(std::int64_t position) {
    const Ids all = groups_of(best_of(chunks_of(position), s_.topk_chunks, by_chunk(position)));
    Ids asked = best_of(all, s_.topk_groups, by_group(position));
    Ids fresh;
    for (const std::int64_t group : asked) {
      if (std::find(open_.begin(), open_.end(), group) == open_.end()) {
        fresh.push_back(group);
      }
    }
    if (s_.sight == HgaSight::kList) {
      if (!full_) {
        const auto room = s_.union_cap - static_cast<std::int64_t>(open_.size());
        full_ = static_cast<std::int64_t>(fresh.size()) > room;
        const Ids kept = best_of(fresh, room, by_group(position));
        open_.insert(open_.end(), kept.begin(), kept.end());
      }
      show(position, {open_.begin(), open_.end()});
      return;
    }
    full_ = full_ || static_cast<std::int64_t>(open_.size() + fresh.size()) > s_.union_cap;
    if (full_) {
      Ids left;
      for (const std::int64_t group : all) {
        if (std::find(open_.begin(), open_.end(), group) != open_.end()) {
          left.push_back(group);
        }
      }
      asked = best_of(left, s_.topk_groups, by_group(position));
    } else {
      open_.insert(open_.end(), fresh.begin(), fresh.end());
    }
    show(position, {asked.begin(), asked.end()});
  }

  void block_rows(std::int64_t begin, std::int64_t end) {
    const auto best_row = [&](const ConstTensorView& summaries) {
      return [this, begin, end, &summaries](std::int64_t id) {
        double best = -std::numeric_limits<double>::infinity();
        for (std::int64_t p = begin; p < end; ++p) {
          best = std::max(best, score(p, summaries, id));
        }
        return best;
      };
    };
    const Ids chunks = best_of(chunks_of(begin), s_.topk_chunks, best_row(args_.chunks));
    open_ = best_of(groups_of(chunks), s_.topk_groups, best_row(args_.group_summaries));
    std::set<std::int64_t> asked;
    for (std::int64_t p = begin; p < end; ++p) {
      const Ids own = best_of(chunks_of(p), s_.topk_chunks, by_chunk(p));
      const Ids groups =
          best_of(groups_of(own), std::max<std::int64_t>(1, s_.topk_groups / 2), by_group(p));
      asked.insert(groups.begin(), groups.end());
      show(p, asked);
    }
  }

  const HgaRoute& args_;
  const HgaSettings& s_ = args_.settings;
  Heads heads_;
  Ids open_;
  bool full_ = false;
};

}  // namespace

void hga_route(const HgaRoute& args) {
  const auto Hq = args.q.dim(1);
  const std::int64_t G = Hq / args.chunks.dim(0);
  for (std::int64_t list = 0; list < args.lists(); ++list) {
    const bool single = args.settings.per_query_head;
    Router(args,
           {.list = list,
            .first = single ? list : list * G,
            .count = single ? 1 : G,
            .kv = single ? list / G : list})
        .run();
  }
}

}  // namespace longtune::ops::ref
