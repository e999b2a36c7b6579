// Routing against a plain program written from its definition alone, over random settings and
// sequences that are fed in pieces.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "device/threads.h"
#include "ops/hga_route.h"
#include "ops/test_weights.h"

namespace longtune::ops {
namespace {

constexpr std::int64_t kD = 8;

using Groups = std::set<std::int64_t>;

// Small whole numbers: scores are exact in every order of sums, fit bf16, and tie often.
std::vector<float> whole_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 7) - 3);
  }
  return result;
}

struct Heads {
  std::int64_t Hq = 1;
  std::int64_t Hkv = 1;
};

// Queries of all positions from 0 on, and the summaries of their closed chunks.
struct Sequence {
  std::int64_t T;
  Heads heads;
  HgaSettings s;
  bool narrow;
  std::vector<float> q, chunks, groups;
  std::vector<BFloat16> narrow_q, narrow_chunks, narrow_groups;

  Sequence(std::int64_t tokens,
           Heads both,
           const HgaSettings& settings,
           bool in_bf16,
           std::uint64_t seed)
      : T(tokens),
        heads(both),
        s(settings),
        narrow(in_bf16),
        q(whole_numbers(T * heads.Hq * kD, 3 * seed)),
        chunks(whole_numbers(heads.Hkv * C() * kD, 3 * seed + 1)),
        groups(whole_numbers(heads.Hkv * C() * per_chunk() * kD, 3 * seed + 2)),
        narrow_q(rounded_to<BFloat16>(q)),
        narrow_chunks(rounded_to<BFloat16>(chunks)),
        narrow_groups(rounded_to<BFloat16>(groups)) {}

  [[nodiscard]] std::int64_t C() const { return T / s.chunk_tokens; }

  [[nodiscard]] std::int64_t per_chunk() const { return s.chunk_tokens / s.group_tokens; }

  [[nodiscard]] std::int64_t lists() const { return s.per_query_head ? heads.Hq : heads.Hkv; }

  [[nodiscard]] std::int64_t heads_of_list() const { return heads.Hq / lists(); }

  [[nodiscard]] ConstTensorView typed(const std::vector<float>& wide,
                                      const std::vector<BFloat16>& rounded,
                                      std::initializer_list<std::int64_t> shape) const {
    return narrow ? view(rounded, shape) : view(wide, shape);
  }
};

// The definition, read row by row.
class Oracle {
 public:
  Oracle(const Sequence& sequence, std::int64_t list) : a_(sequence), s_(a_.s), list_(list) {}

  std::vector<Groups> run() {
    std::vector<Groups> result;
    for (std::int64_t t = 0; t < a_.T; ++t) {
      result.push_back(s_.routing == HgaRouting::kCausal ? causal(t) : block(t));
    }
    return result;
  }

 private:
  [[nodiscard]] int score(std::int64_t t,
                          const std::vector<float>& summaries,
                          std::int64_t row) const {
    const std::int64_t count = a_.heads_of_list();
    const std::int64_t kv = list_ * count / (a_.heads.Hq / a_.heads.Hkv);
    const std::int64_t rows = std::ssize(summaries) / (a_.heads.Hkv * kD);
    int best = -1'000'000;
    for (std::int64_t h = list_ * count; h < (list_ + 1) * count; ++h) {
      float sum = 0;
      for (std::int64_t d = 0; d < kD; ++d) {
        sum += a_.q[(t * a_.heads.Hq + h) * kD + d] * summaries[(kv * rows + row) * kD + d];
      }
      best = std::max(best, static_cast<int>(sum));
    }
    return best;
  }

  // The best of each of some rows for the rows' own sake.
  [[nodiscard]] int score_of_rows(std::int64_t begin,
                                  std::int64_t end,
                                  const std::vector<float>& summaries,
                                  std::int64_t row) const {
    int best = -1'000'000;
    for (std::int64_t t = begin; t < end; ++t) {
      best = std::max(best, score(t, summaries, row));
    }
    return best;
  }

  // Takes the best one, the earliest of equals, `k` times over.
  template <class Score>
  static Groups top(Groups from, std::int64_t k, Score score) {
    Groups result;
    while (!from.empty() && std::ssize(result) < k) {
      auto best = from.begin();
      int best_score = score(*best);
      for (auto i = std::next(best); i != from.end(); ++i) {
        if (const int other = score(*i); other > best_score) {
          best = i;
          best_score = other;
        }
      }
      result.insert(*best);
      from.erase(best);
    }
    return result;
  }

  // Closed chunks strictly between sinks and window.
  [[nodiscard]] Groups candidates(std::int64_t t) const {
    Groups result;
    for (std::int64_t c = s_.first_chunks; c < t / s_.chunk_tokens - s_.last_chunks; ++c) {
      result.insert(c);
    }
    return result;
  }

  [[nodiscard]] Groups groups_of(const Groups& chunks) const {
    Groups result;
    for (const std::int64_t chunk : chunks) {
      for (std::int64_t g = 0; g < a_.per_chunk(); ++g) {
        result.insert(chunk * a_.per_chunk() + g);
      }
    }
    return result;
  }

  [[nodiscard]] Groups own_groups(std::int64_t t) const {
    return groups_of(
        top(candidates(t), s_.topk_chunks, [&](auto c) { return score(t, a_.chunks, c); }));
  }

  [[nodiscard]] Groups best_groups(const Groups& from, std::int64_t t, std::int64_t k) const {
    return top(from, k, [&](auto g) { return score(t, a_.groups, g); });
  }

  Groups causal(std::int64_t t) {
    if (t % s_.block_queries == 0) {
      union_.clear();
      full_ = false;
    }
    const Groups own = own_groups(t);
    const Groups asked = best_groups(own, t, s_.topk_groups);
    Groups grown = union_;
    grown.insert(asked.begin(), asked.end());
    if (s_.sight == HgaSight::kList) {
      if (!full_) {
        full_ = std::ssize(grown) > s_.union_cap;
        Groups fresh;
        std::ranges::set_difference(asked, union_, std::inserter(fresh, fresh.end()));
        union_.merge(best_groups(fresh, t, s_.union_cap - std::ssize(union_)));
      }
      return union_;
    }
    full_ = full_ || std::ssize(grown) > s_.union_cap;
    if (!full_) {
      union_ = grown;
      return asked;
    }
    Groups listed;
    std::ranges::set_intersection(own, union_, std::inserter(listed, listed.end()));
    return best_groups(listed, t, s_.topk_groups);
  }

  Groups block(std::int64_t t) {
    const std::int64_t begin = t / s_.chunk_tokens * s_.chunk_tokens;
    const std::int64_t end = std::min(a_.T, begin + s_.chunk_tokens);
    if (t == begin) {
      asked_.clear();
      const Groups chunks = top(candidates(t), s_.topk_chunks, [&](auto c) {
        return score_of_rows(begin, end, a_.chunks, c);
      });
      union_ = top(groups_of(chunks), s_.topk_groups, [&](auto g) {
        return score_of_rows(begin, end, a_.groups, g);
      });
    }
    asked_.merge(best_groups(own_groups(t), t, s_.topk_groups / 2));
    Groups result;
    std::ranges::set_intersection(union_, asked_, std::inserter(result, result.end()));
    return result;
  }

  const Sequence& a_;
  const HgaSettings& s_;
  std::int64_t list_;
  Groups union_, asked_;
  bool full_ = false;
};

// What one call wrote for queries [first, first + T).
struct Routed {
  std::int64_t first, T;
  Selection shape;
  std::vector<std::int32_t> groups, counts;
  std::vector<std::uint64_t> seen;

  [[nodiscard]] std::vector<std::int32_t> list_of(std::int64_t position, std::int64_t list) const {
    const std::int64_t block = position / shape.block_queries - first / shape.block_queries;
    const auto* begin = groups.data() + (block * shape.lists + list) * shape.capacity;
    return {begin, begin + counts[block * shape.lists + list]};
  }

  [[nodiscard]] const std::uint64_t* bits_of(std::int64_t position, std::int64_t list) const {
    return seen.data() + ((position - first) * shape.lists + list) * shape.words();
  }

  [[nodiscard]] Groups seen_by(std::int64_t position, std::int64_t list) const {
    const std::vector<std::int32_t> listed = list_of(position, list);
    Groups result;
    for (std::int64_t i = 0; i < std::ssize(listed); ++i) {
      if ((bits_of(position, list)[i / 64] >> (i % 64) & 1) != 0) {
        result.insert(listed[static_cast<std::size_t>(i)]);
      }
    }
    return result;
  }
};

// Feeds a sequence in pieces, keeping the open lists in between.
class Feeder {
 public:
  explicit Feeder(const Sequence& sequence)
      : a_(sequence),
        groups_(static_cast<std::size_t>(a_.lists() * a_.s.capacity()), -1),
        counts_(static_cast<std::size_t>(a_.lists()), 0),
        full_(counts_) {}

  Routed feed(std::int64_t first, std::int64_t count) {
    const auto Hkv = a_.heads.Hkv;
    HgaRoute args{
        .open = {.groups = groups_.data(), .counts = counts_.data(), .full = full_.data()},
        .q = a_.typed(a_.q, a_.narrow_q, {a_.T, a_.heads.Hq, kD}).rows(first, count),
        .chunks = a_.typed(a_.chunks, a_.narrow_chunks, {Hkv, a_.C(), kD}),
        .group_summaries =
            a_.typed(a_.groups, a_.narrow_groups, {Hkv, a_.C() * a_.per_chunk(), kD}),
        .first_position = first,
        .settings = a_.s};
    Routed result{.first = first, .T = count, .shape = args.selection()};
    const Selection& shape = result.shape;
    const std::int64_t blocks = shape.blocks(first, count);
    result.groups.resize(static_cast<std::size_t>(blocks * shape.lists * shape.capacity), -1);
    result.counts.resize(static_cast<std::size_t>(blocks * shape.lists), -1);
    result.seen.resize(static_cast<std::size_t>(count * shape.lists * shape.words()));
    args.groups = result.groups.data();
    args.counts = result.counts.data();
    args.seen = result.seen.data();
    hga_route(args);
    return result;
  }

 private:
  const Sequence& a_;
  std::vector<std::int32_t> groups_, counts_, full_;
};

// Settings of every kind, narrow enough that lists fill up.
HgaSettings random_settings(std::uint64_t seed) {
  auto pick = [&, draw = std::uint64_t{0}](std::int64_t from, std::int64_t to) mutable {
    return from + static_cast<std::int64_t>(random_bits(seed, draw++) %
                                            static_cast<std::uint64_t>(to - from + 1));
  };
  HgaSettings s;
  s.routing = seed % 3 == 2 ? HgaRouting::kBlock : HgaRouting::kCausal;
  s.first_chunks = pick(0, 3);
  s.last_chunks = pick(0, 3);
  s.group_tokens = std::int64_t{8} << pick(0, 3);
  s.chunk_tokens = seed % 4 == 3 ? 128 : 64;
  s.block_queries = s.routing == HgaRouting::kBlock ? s.chunk_tokens : s.chunk_tokens >> pick(0, 6);
  s.topk_chunks = pick(1, 6);
  s.topk_groups = pick(2, 20);
  s.union_cap = s.topk_groups + pick(0, 60) * pick(0, 1);
  s.per_query_head = pick(0, 1) == 1;
  s.sight = pick(0, 1) == 1 ? HgaSight::kList : HgaSight::kAsked;
  return s;
}

Sequence random_sequence(std::uint64_t seed) {
  constexpr Heads kHeads[] = {{1, 1}, {4, 2}, {3, 1}, {2, 2}, {6, 3}};
  const auto T = 450 + static_cast<std::int64_t>(random_bits(seed, 99) % 200);
  const HgaSettings settings = random_settings(seed);
  const std::int64_t longer = settings.chunk_tokens / kPageTokens;  // as many chunks
  return {T * longer, kHeads[seed % 5], settings, seed % 2 == 1, seed};
}

constexpr std::uint64_t kSequences = 36;  // every fourth in chunks of 128

TEST(HgaRouteOracle, RandomSequencesSeeWhatTheDefinitionSays) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (std::uint64_t seed = 0; seed < kSequences; ++seed) {
      const Sequence sequence = random_sequence(seed);
      const Routed routed = Feeder(sequence).feed(0, sequence.T);
      for (std::int64_t list = 0; list < sequence.lists(); ++list) {
        const std::vector<Groups> expected = Oracle(sequence, list).run();
        for (std::int64_t t = 0; t < sequence.T; ++t) {
          ASSERT_EQ(routed.seen_by(t, list), expected[static_cast<std::size_t>(t)])
              << "sequence " << seed << ", list " << list << ", query " << t;
        }
      }
    }
  }
}

// The bits of attention follow the order of a list, so pieces must open groups in the same order.
TEST(HgaRouteOracle, PiecesOpenTheSameListsInTheSameOrder) {
  use_threads(1);  // calls this small would wait for each other more than they work
  for (std::uint64_t seed = 0; seed < kSequences; ++seed) {
    const Sequence sequence = random_sequence(seed);
    if (sequence.s.routing == HgaRouting::kBlock) {
      continue;
    }
    const Routed whole = Feeder(sequence).feed(0, sequence.T);
    Feeder feeder(sequence);
    for (std::int64_t first = 0, call = 0; first < sequence.T; ++call) {
      const std::uint64_t draw = random_bits(seed + 1000, static_cast<std::uint64_t>(call));
      const std::int64_t count = std::min<std::int64_t>(
          sequence.T - first, draw % 2 == 0 ? 1 : 1 + static_cast<std::int64_t>(draw / 2 % 90));
      const Routed part = feeder.feed(first, count);
      for (std::int64_t t = first; t < first + count; ++t) {
        for (std::int64_t list = 0; list < sequence.lists(); ++list) {
          const auto so_far = part.list_of(t, list);
          auto in_the_end = whole.list_of(t, list);
          ASSERT_GE(in_the_end.size(), so_far.size());
          in_the_end.resize(so_far.size());
          ASSERT_EQ(so_far, in_the_end) << "sequence " << seed << ", query " << t;
          ASSERT_TRUE(std::equal(part.bits_of(t, list),
                                 part.bits_of(t, list) + part.shape.words(),
                                 whole.bits_of(t, list)))
              << "sequence " << seed << ", query " << t;
        }
      }
      first += count;
    }
  }
  use_threads(available_cores());
}

// Pairs of a query and a token of a closed chunk before it, attended and in all.
double history_seen(const Sequence& sequence, const Routed& routed, std::int64_t until) {
  double attended = 0;
  double all = 0;
  for (std::int64_t t = 0; t < until; ++t) {
    const std::int64_t chunk = t / sequence.s.chunk_tokens;
    const std::int64_t page = chunk * sequence.s.chunk_pages();  // the first of its own
    std::int64_t groups = 0;
    for (std::int64_t word = 0; word < routed.shape.words(); ++word) {
      groups += std::popcount(routed.bits_of(t, 0)[word]);
    }
    const std::int64_t pages =
        routed.shape.sinks_end(page) + page - routed.shape.window_begin(page);
    attended += static_cast<double>(pages * kPageTokens + groups * sequence.s.group_tokens);
    all += static_cast<double>(page * kPageTokens);
  }
  return attended / all;
}

TEST(HgaRouteOracle, AttendsTheShareOfTheHistoryThatTheBudgetGives) {
  const HgaSettings published{.topk_groups = 32, .union_cap = 64, .sight = HgaSight::kAsked};
  HgaSettings s = published;
  s.union_cap = 16 * s.topk_groups;  // never full
  const Sequence roomy(32768, {}, s, false, 7);
  const Routed routed = Feeder(roomy).feed(0, roomy.T);
  EXPECT_NEAR(history_seen(roomy, routed, 2048), 0.617, 0.0005);
  EXPECT_NEAR(history_seen(roomy, routed, 4096), 0.342, 0.0005);
  EXPECT_NEAR(history_seen(roomy, routed, 8192), 0.179, 0.0005);
  EXPECT_NEAR(history_seen(roomy, routed, 16384), 0.092, 0.0005);
  EXPECT_NEAR(history_seen(roomy, routed, 32768), 0.046, 0.0005);
  s.chunk_tokens = 128;  // twice as many of sinks and window, and half of the own chunk more
  const Sequence wide(8192, {}, s, false, 7);
  const Routed of_wide = Feeder(wide).feed(0, wide.T);
  EXPECT_NEAR(history_seen(wide, of_wide, 8192), 0.2361, 0.0005);
  // Queries with nothing in common fill the list.
  const Sequence capped(8192, {}, published, false, 7);
  const double share = history_seen(capped, Feeder(capped).feed(0, capped.T), capped.T);
  EXPECT_LT(share, 0.179);
  EXPECT_GT(share, 0.09);
  // Of a list that is read whole, between what one query asks for and what it holds.
  HgaSettings whole = published;
  whole.sight = HgaSight::kList;
  const Sequence listed(8192, {}, whole, false, 7);
  const double of_list = history_seen(listed, Feeder(listed).feed(0, listed.T), listed.T);
  EXPECT_GT(of_list, 0.179);
  EXPECT_LT(of_list, 0.29);
}

}  // namespace
}  // namespace longtune::ops
