#include "attention/hga.h"

#include <gtest/gtest.h>

#include <set>

#include "ops/test_pages.h"
#include "ops/test_values.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

constexpr std::int64_t kD = 8;

// Random queries and keys of a sequence of two layers.
struct Sequence {
  std::int64_t T;
  std::vector<float> q, k;
  ops::TestPages pages;
  std::vector<float> frequencies{1, 0.1F, 0.004F, 0.0005F};

  Sequence(std::int64_t tokens, std::uint64_t seed)
      : T(tokens),
        q(ops::random_values(tokens * 4 * kD, seed)),
        k(ops::random_values(tokens * 2 * kD, seed + 1)),
        pages({.tokens = tokens, .Hkv = 2, .D = kD}) {
    const ConstTensorView keys = view(std::as_const(k), {T, 2, kD});
    ops::kv_append({.kv = pages.pages(), .k = keys, .v = keys});
  }

  // The cell [first, first + count), with the pages as they are once it has been appended.
  [[nodiscard]] ops::Selection choose(Hga& hga,
                                      std::int64_t layer,
                                      std::int64_t first,
                                      std::int64_t count) const {
    ops::KvPages kv = pages.pages();
    kv.tokens = first + count;
    return hga.choose(layer, view(std::as_const(q), {T, 4, kD}).rows(first, count), kv, first);
  }
};

Hga::Shape shape(std::int64_t context, std::int64_t cell, bool replays) {
  return {.L = 2,
          .Hq = 4,
          .Hkv = 2,
          .D = kD,
          .kv = DType::kF32,
          .context = context,
          .cell_tokens = cell,
          .replays = replays};
}

// What every query of a cell sees of list 1.
std::vector<std::set<std::int32_t>> sights(const ops::Selection& s,
                                           std::int64_t first,
                                           std::int64_t count) {
  const OperationScope scope("reading");
  std::vector<std::set<std::int32_t>> result;
  for (std::int64_t t = 0; t < count; ++t) {
    const std::int64_t block = (first + t) / s.block_queries - first / s.block_queries;
    result.emplace_back();
    for (std::int64_t i = 0; i < s.counts[block * s.lists + 1]; ++i) {
      if (s.seen[(t * s.lists + 1) * s.words() + i / 64] >> (i % 64) & 1) {
        result.back().insert(s.groups[(block * s.lists + 1) * s.capacity + i]);
      }
    }
  }
  return result;
}

AttentionOptions narrow() {
  AttentionOptions options{.kind = AttentionKind::kHga};
  options.hga.topk_chunks = 3;
  options.hga.topk_groups = 4;
  options.hga.union_cap = 12;
  return options;
}

class HgaMemory {
 public:
  HgaMemory(const Hga::Shape& s, const AttentionOptions& options)
      : arena_(bytes(s, options), Arena::Options::from_environment()),
        hga_(s, options, arena_, plan_) {
    hga_.load(std::vector<float>{1, 0.1F, 0.004F, 0.0005F});
  }

  Hga& operator*() { return hga_; }

 private:
  static std::int64_t bytes(const Hga::Shape& s, const AttentionOptions& options) {
    Arena planning = Arena::planning();
    Plan plan;
    const Hga planned(s, options, planning, plan);
    return planning.high_water();
  }

  Plan plan_;
  Arena arena_;
  Hga hga_;
};

TEST(Hga, CellsOfAnySizeChooseTheSame) {
  const Sequence sequence(900, 3);
  HgaMemory whole(shape(900, 900, false), narrow());
  const auto all = sights(sequence.choose(*whole, 0, 0, 900), 0, 900);
  EXPECT_EQ(all[100].size(), 0U);  // sinks and window hold everything
  EXPECT_EQ(all[832].size(), 4U);  // the first of its block: its list is not full
  HgaMemory parts(shape(900, 130, false), narrow());
  std::int64_t first = 0;
  for (const std::int64_t count : {130, 1, 1, 64, 100, 130, 130, 130, 13, 101, 100}) {
    const auto part = sights(sequence.choose(*parts, 0, first, count), first, count);
    for (std::int64_t t = 0; t < count; ++t) {
      ASSERT_EQ(part[t], all[first + t]) << "at " << first + t;
    }
    first += count;
  }
  EXPECT_EQ(first, 900);
}

TEST(Hga, AsksForTheEarlierPageOfAChunkThatACellCloses) {
  AttentionOptions options = narrow();
  options.hga.chunk_tokens = 128;
  HgaMemory hga(shape(900, 130, false), options);
  const std::vector<std::int32_t> none;
  EXPECT_EQ((*hga).pages_to_close(0, 130), none);
  EXPECT_EQ((*hga).pages_to_close(200, 55), none);  // not closed yet
  EXPECT_EQ((*hga).pages_to_close(200, 56), (std::vector<std::int32_t>{2}));
  EXPECT_EQ((*hga).pages_to_close(140, 116), none);  // the page is live
}

TEST(Hga, ANewSequenceForgetsTheLast) {
  const Sequence first(700, 3);
  const Sequence second(700, 9);
  HgaMemory fresh(shape(700, 700, false), narrow());
  const auto expected = sights(second.choose(*fresh, 1, 0, 700), 0, 700);
  HgaMemory used(shape(700, 700, false), narrow());
  (void)first.choose(*used, 1, 0, 700);
  EXPECT_EQ(sights(second.choose(*used, 1, 0, 700), 0, 700), expected);
}

TEST(Hga, KeepsTheSelectionsOfEveryLayerWhereTheyAreReplayed) {
  const Sequence a(700, 3);
  const Sequence b(700, 9);
  HgaMemory hga(shape(700, 700, true), narrow());
  const auto first = sights(a.choose(*hga, 0, 0, 700), 0, 700);
  const auto second = sights(b.choose(*hga, 1, 0, 700), 0, 700);
  EXPECT_NE(first, second);
  EXPECT_EQ(sights((*hga).chosen(0), 0, 700), first);
  EXPECT_EQ(sights((*hga).chosen(1), 0, 700), second);
  HgaMemory reading(shape(700, 700, false), narrow());
  expect_error([&] { (void)(*reading).chosen(0); },
               ErrorCode::kInternal,
               "selections of a model that only reads are not kept");
}

}  // namespace
}  // namespace longtune
