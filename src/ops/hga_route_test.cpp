#include "ops/hga_route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "device/threads.h"
#include "ops/test_weights.h"
#include "support/expect_error.h"

namespace longtune::ops {
namespace {

struct Shape {
  std::int64_t T = 1;
  std::int64_t first_position = 0;
  std::int64_t Hq = 1;
  std::int64_t Hkv = 1;
  std::int64_t D = 8;
  HgaSettings settings;
  std::int64_t S = D;  // of summaries
};

// Small whole numbers, whose products every order of additions gets exactly, so that the reference
// chooses the same; ties abound.
std::vector<float> whole_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(static_cast<int>(random_bits(seed, i) % 9) - 4);
  }
  return result;
}

struct Case {
  Shape shape;
  std::int64_t chunks;
  std::vector<float> q, chunk_summaries, group_summaries;
  std::vector<std::int32_t> groups, counts, open_groups, open_counts, open_full;
  std::vector<std::uint64_t> seen;

  explicit Case(const Shape& s)
      : shape(s),
        chunks((s.first_position + s.T) / s.settings.chunk_tokens),
        q(whole_numbers(s.T * s.Hq * s.D, 1)),
        chunk_summaries(whole_numbers(s.Hkv * chunks * s.S, 2)),
        group_summaries(whole_numbers(s.Hkv * chunks * s.settings.chunk_groups() * s.S, 3)) {
    const Selection selection = args().selection();
    const std::int64_t lists = selection.lists;
    const std::int64_t blocks = selection.blocks(s.first_position, s.T);
    groups.assign(static_cast<std::size_t>(blocks * lists * selection.capacity), -1);
    counts.assign(static_cast<std::size_t>(blocks * lists), -1);
    seen.assign(static_cast<std::size_t>(s.T * lists * selection.words()), ~std::uint64_t{0});
    open_groups.assign(static_cast<std::size_t>(lists * selection.capacity), -1);
    open_counts.assign(static_cast<std::size_t>(lists), 0);
    open_full = open_counts;
  }

  HgaRoute args() {
    const std::int64_t per_chunk = shape.settings.chunk_groups();
    return {.groups = groups.data(),
            .counts = counts.data(),
            .seen = seen.data(),
            .open = {.groups = open_groups.data(),
                     .counts = open_counts.data(),
                     .full = open_full.data()},
            .q = view(std::as_const(q), {shape.T, shape.Hq, shape.D}),
            .chunks = view(std::as_const(chunk_summaries), {shape.Hkv, chunks, shape.S}),
            .group_summaries =
                view(std::as_const(group_summaries), {shape.Hkv, chunks * per_chunk, shape.S}),
            .first_position = shape.first_position,
            .settings = shape.settings};
  }

  // Groups that query t sees through list `list`.
  std::set<std::int32_t> seen_by(std::int64_t t, std::int64_t list) {
    const Selection s = args().selection();
    const std::int64_t block =
        (shape.first_position + t) / s.block_queries - shape.first_position / s.block_queries;
    std::set<std::int32_t> result;
    for (std::int64_t i = 0; i < counts[block * s.lists + list]; ++i) {
      if (seen[(t * s.lists + list) * s.words() + i / 64] >> (i % 64) & 1) {
        result.insert(groups[(block * s.lists + list) * s.capacity + i]);
      }
    }
    return result;
  }
};

std::vector<Shape> shapes() {
  HgaSettings narrow{.topk_chunks = 3, .topk_groups = 5, .union_cap = 9};
  HgaSettings asked = narrow;
  asked.sight = HgaSight::kAsked;
  HgaSettings heads = asked;
  heads.per_query_head = true;
  HgaSettings small{.first_chunks = 1,
                    .last_chunks = 0,
                    .group_tokens = 8,
                    .block_queries = 8,
                    .topk_chunks = 2,
                    .topk_groups = 70,
                    .union_cap = 100};
  HgaSettings paper{
      .routing = HgaRouting::kBlock, .block_queries = 64, .topk_chunks = 4, .topk_groups = 6};
  HgaSettings paper_heads = paper;
  paper_heads.per_query_head = true;
  HgaSettings wide = narrow;
  wide.chunk_tokens = 128;
  HgaSettings wide_block = paper;
  wide_block.chunk_tokens = wide_block.block_queries = 128;
  HgaSettings wide_list = wide;  // shared by both pages of a chunk
  wide_list.block_queries = 128;
  wide_list.union_cap = 40;
  return {
      {.T = 150, .first_position = 900, .Hq = 6, .Hkv = 2, .settings = narrow},
      {.T = 150, .first_position = 900, .Hq = 6, .Hkv = 2, .settings = asked},
      {.T = 90, .first_position = 1000, .Hq = 4, .Hkv = 2, .D = 10, .settings = heads},
      {.T = 70, .first_position = 1280, .Hq = 3, .Hkv = 1, .settings = small},
      {.T = 400, .Hq = 2, .Hkv = 2},
      {.T = 150, .first_position = 900, .Hq = 6, .Hkv = 2, .settings = narrow, .S = 16},
      {.T = 90, .first_position = 1000, .Hq = 2, .Hkv = 2, .D = 10, .settings = narrow, .S = 20},
      {.T = 200, .first_position = 832, .Hq = 4, .Hkv = 2, .settings = paper},
      {.T = 130, .first_position = 960, .Hq = 4, .Hkv = 2, .settings = paper_heads},
      {.T = 300, .first_position = 1100, .Hq = 4, .Hkv = 2, .settings = wide},
      {.T = 300, .first_position = 1088, .Hq = 4, .Hkv = 2, .settings = wide_list},
      {.T = 300, .first_position = 1280, .Hq = 4, .Hkv = 2, .settings = wide_block}};
}

TEST(HgaRoute, ChoosesAsTheReferenceDoes) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const Shape& shape : shapes()) {
      Case fast(shape);
      Case truth(shape);
      hga_route(fast.args());
      ref::hga_route(truth.args());
      EXPECT_EQ(fast.counts, truth.counts);
      EXPECT_EQ(fast.groups, truth.groups);
      EXPECT_EQ(fast.seen, truth.seen);
      if (shape.settings.routing == HgaRouting::kCausal) {
        EXPECT_EQ(fast.open_counts, truth.open_counts);
        EXPECT_EQ(fast.open_full, truth.open_full);
      }
    }
  }
}

TEST(HgaRoute, WorkedByHand) {
  // Chunks 0 and 9 are sink and window of queries in chunk 10; 1 .. 8 may be routed to. Of their
  // two best chunks queries take two groups, each scored by one number.
  HgaSettings settings{.first_chunks = 1,
                       .last_chunks = 1,
                       .group_tokens = 32,
                       .block_queries = 4,
                       .topk_chunks = 2,
                       .topk_groups = 2,
                       .union_cap = 3,
                       .sight = HgaSight::kAsked};
  Case c({.T = 4, .first_position = 640, .D = 2, .settings = settings});
  ASSERT_EQ(c.chunks, 10);
  std::fill(c.chunk_summaries.begin(), c.chunk_summaries.end(), 0.0F);
  std::fill(c.group_summaries.begin(), c.group_summaries.end(), 0.0F);
  c.chunk_summaries[2 * 3] = 5;  // by the first number: chunk 3, then 6
  c.chunk_summaries[2 * 6] = 4;
  c.chunk_summaries[2 * 7 + 1] = 3;  // by the second: chunk 7, then the first of equals, 1
  c.chunk_summaries[2 * 9] = 99;     // seen anyway
  c.group_summaries[2 * 7] = 1;      // chunk 3's second group
  c.group_summaries[2 * 12] = 2;     // chunk 6's first
  c.q = {1, 0, 0, 1, 1, 0, 0, 0};
  hga_route(c.args());
  EXPECT_EQ(c.seen_by(0, 0), (std::set<std::int32_t>{7, 12}));
  // Groups 2 and 3 of chunk 1 tie with 14 and 15 of chunk 7 and come first: four do not fit three.
  EXPECT_EQ(c.seen_by(1, 0), (std::set<std::int32_t>{}));
  EXPECT_EQ(c.seen_by(2, 0), (std::set<std::int32_t>{7, 12}));
  // All chunks tie for the last query: 1 and 2, none of whose groups is listed.
  EXPECT_EQ(c.seen_by(3, 0), (std::set<std::int32_t>{}));
  EXPECT_EQ(c.counts, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(c.open_full, (std::vector<std::int32_t>{1}));

  c.shape.settings.sight = HgaSight::kList;
  hga_route(c.args());
  // The second query adds the better one of its two groups, which tie: the earlier. All see all.
  EXPECT_EQ(c.seen_by(0, 0), (std::set<std::int32_t>{7, 12}));
  for (const std::int64_t query : {1, 2, 3}) {
    EXPECT_EQ(c.seen_by(query, 0), (std::set<std::int32_t>{2, 7, 12}));
  }
  EXPECT_EQ(c.counts, (std::vector<std::int32_t>{3}));
  EXPECT_EQ(c.open_full, (std::vector<std::int32_t>{1}));
}

// What query t sees, as sets: lists of different calls may lie elsewhere.
std::vector<std::set<std::int32_t>> sights(Case& c, std::int64_t until) {
  std::vector<std::set<std::int32_t>> result;
  for (std::int64_t t = 0; t < until; ++t) {
    for (std::int64_t list = 0; list < c.args().lists(); ++list) {
      result.push_back(c.seen_by(t, list));
    }
  }
  return result;
}

TEST(HgaRoute, NeverDependsOnLaterQueries) {
  for (const Shape& shape : shapes()) {
    bool leaks = false;
    for (const std::int64_t changed : {1L, 17L, shape.T - 1}) {
      Case before(shape);
      hga_route(before.args());
      Case after(shape);
      for (std::int64_t i = changed * shape.Hq * shape.D; i < std::ssize(after.q); ++i) {
        after.q[i] = -3 * after.q[i];
      }
      hga_route(after.args());
      leaks |= sights(before, changed) != sights(after, changed);
    }
    EXPECT_EQ(leaks, shape.settings.routing == HgaRouting::kBlock);
  }
}

// Values of any kind: what a query gets must not depend on rounding that company changes.
TEST(HgaRoute, OneAtATimeGivesTheSame) {
  for (const Isa isa : isas_here()) {
    const WithIsa with(isa);
    for (const Shape& shape : shapes()) {
      if (shape.settings.routing == HgaRouting::kBlock) {
        continue;
      }
      Case whole(shape);
      whole.q = random_values(shape.T * shape.Hq * shape.D, 4);
      whole.chunk_summaries = random_values(std::ssize(whole.chunk_summaries), 5);
      whole.group_summaries = random_values(std::ssize(whole.group_summaries), 6);
      hga_route(whole.args());
      Case parts(shape);  // keeps the open lists
      for (std::int64_t t = 0; t < shape.T;) {
        const std::int64_t count = std::min<std::int64_t>(t % 3 == 0 ? 1 : t % 23, shape.T - t);
        Shape step = shape;
        step.T = count;
        step.first_position += t;
        Case part(step);
        part.open_groups = parts.open_groups;
        part.open_counts = parts.open_counts;
        part.open_full = parts.open_full;
        part.chunks = whole.chunks;
        part.chunk_summaries = whole.chunk_summaries;
        part.group_summaries = whole.group_summaries;
        const std::int64_t row = shape.Hq * shape.D;
        part.q.assign(whole.q.begin() + t * row, whole.q.begin() + (t + count) * row);
        // The first block of the whole may have begun before its first query.
        hga_route(part.args());
        for (std::int64_t i = 0; i < count; ++i) {
          for (std::int64_t list = 0; list < whole.args().lists(); ++list) {
            ASSERT_EQ(part.seen_by(i, list), whole.seen_by(t + i, list)) << t << " " << i;
          }
        }
        parts.open_groups = part.open_groups;
        parts.open_counts = part.open_counts;
        parts.open_full = part.open_full;
        t += count;
      }
    }
  }
}

TEST(HgaRoute, GivesTheSameForAnyThreadCount) {
  for (const Shape& shape : shapes()) {
    use_threads(1);
    Case one(shape);
    hga_route(one.args());
    for (const int threads : {2, 3, 8}) {
      use_threads(threads);
      Case many(shape);
      hga_route(many.args());
      EXPECT_EQ(many.groups, one.groups);
      EXPECT_EQ(many.seen, one.seen);
    }
  }
  use_threads(available_cores());
}

// Sinks, window and routed chunks of 128 are twice as many pages, and a query in its chunk's second
// page sees no more of what lies before the chunk than one in the first.
TEST(HgaRoute, ChunksOf128AreTwoPages) {
  HgaSettings settings{
      .chunk_tokens = 128, .first_chunks = 1, .last_chunks = 1, .topk_chunks = 1, .topk_groups = 8};
  Case c({.T = 128, .first_position = 640, .settings = settings});
  const Selection s = c.args().selection();
  for (const std::int64_t page : {10, 11}) {
    EXPECT_EQ(s.sinks_end(page), 2);
    EXPECT_EQ(s.window_begin(page), 8);
  }
  EXPECT_TRUE(s.sees_page(11, 10));
  EXPECT_FALSE(s.sees_page(10, 7));
  EXPECT_EQ(c.chunks, 6);
  std::fill(c.chunk_summaries.begin(), c.chunk_summaries.end(), 0.0F);
  std::fill(c.q.begin(), c.q.end(), 1.0F);
  c.chunk_summaries[8 * 2] = 1;  // the best of chunks 1, 2 and 3
  hga_route(c.args());
  for (std::int64_t t = 0; t < 128; ++t) {
    EXPECT_EQ(c.seen_by(t, 0), (std::set<std::int32_t>{16, 17, 18, 19, 20, 21, 22, 23})) << t;
  }
}

TEST(HgaRoute, NothingIsRoutedWhileTheWindowHoldsEverything) {
  HgaSettings settings{.last_chunks = 20};
  Case c({.T = 100, .first_position = 1000, .Hq = 2, .Hkv = 1, .settings = settings});
  hga_route(c.args());
  EXPECT_EQ(std::set<std::int32_t>(c.counts.begin(), c.counts.end()), std::set<std::int32_t>{0});
  EXPECT_EQ(std::set<std::uint64_t>(c.seen.begin(), c.seen.end()), std::set<std::uint64_t>{0});
}

TEST(HgaRoute, SurvivesScoresThatAreNoNumbers) {
  Case c({.T = 20,
          .first_position = 1280,
          .settings = {.topk_chunks = 3, .topk_groups = 4, .sight = HgaSight::kAsked}});
  c.chunk_summaries[8 * 5] = NAN;
  c.q[8] = NAN;
  hga_route(c.args());
  EXPECT_EQ(c.seen_by(0, 0).size(), 4U);
  EXPECT_EQ(c.seen_by(1, 0).size(), 4U);
}

TEST(HgaRoute, NamesWhatDoesNotFit) {
  Case c({.T = 20, .first_position = 1280});
  auto args = c.args();
  args.settings.union_cap = 23;
  expect_error([&] { hga_route(args); },
               ErrorCode::kInvalidArgument,
               "[hga_route] union_cap 23 is below topk_groups");
  args = c.args();
  args.settings.block_queries = 24;
  expect_error([&] { hga_route(args); },
               ErrorCode::kInvalidArgument,
               "[hga_route] block_queries 24 does not divide a chunk");
  args = c.args();
  args.settings.chunk_tokens = 96;
  expect_error([&] { hga_route(args); },
               ErrorCode::kInvalidArgument,
               "[hga_route] chunk_tokens 96 is neither 64 nor 128");
  args = c.args();
  args.first_position = 1600;
  expect_error([&] { hga_route(args); },
               ErrorCode::kInvalidArgument,
               "[hga_route] chunks to route 23 are more than there are summaries");
}

}  // namespace
}  // namespace longtune::ops
