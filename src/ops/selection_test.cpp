#include "ops/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/threads.h"
#include "ops/attention.h"
#include "ops/test_pages.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

struct Shape {
  std::int64_t T = 1;
  std::int64_t first_position = 0;
  std::int64_t Hq = 1;
  std::int64_t Hkv = 1;
  std::int64_t D = 8;
  std::int64_t live_begin = 0;
  std::int64_t first_pages = 1;
  std::int64_t last_pages = 1;
  std::int64_t chunk_pages = 1;
  std::int64_t group_tokens = 16;
  std::int64_t block_queries = 16;
  std::int64_t capacity = 0;
  bool per_query_head = false;
  DType kv = DType::kF32;
};

std::string describe(const Shape& s) {
  return fmt::format(
      "T {} from {}, {} heads over {} of {}, live from {}, pages {} and {} of "
      "chunks of {}, {} groups of {} for "
      "blocks of {}{}, kv {}",
      s.T,
      s.first_position,
      s.Hq,
      s.Hkv,
      s.D,
      s.live_begin,
      s.first_pages,
      s.last_pages,
      s.chunk_pages,
      s.capacity,
      s.group_tokens,
      s.block_queries,
      s.per_query_head ? " per query head" : "",
      name_of(s.kv));
}

// Random lists of distinct groups from the pages that a block does not see otherwise, and random
// bits.
struct Lists {
  std::vector<std::int32_t> groups, counts;
  std::vector<std::uint64_t> seen;
  Selection selection;

  Lists(const Lists&) = delete;
  Lists& operator=(const Lists&) = delete;
  ~Lists() = default;

  explicit Lists(const Shape& s) {
    selection = {.first_pages = s.first_pages,
                 .last_pages = s.last_pages,
                 .chunk_pages = s.chunk_pages,
                 .group_tokens = s.group_tokens,
                 .block_queries = s.block_queries,
                 .capacity = s.capacity,
                 .lists = s.per_query_head ? s.Hq : s.Hkv};
    const std::int64_t blocks = selection.blocks(s.first_position, s.T);
    groups.assign(static_cast<std::size_t>(blocks * selection.lists * s.capacity), -1);
    for (std::int64_t i = 0; i < blocks * selection.lists; ++i) {
      counts.push_back(static_cast<std::int32_t>(fill(s, i)));
    }
    for (std::int64_t i = 0; i < s.T * selection.lists * selection.words(); ++i) {
      seen.push_back(random_bits(9, i));
    }
    selection.groups = groups.data();
    selection.counts = counts.data();
    selection.seen = seen.data();
  }

  // List i gets some of the groups it may hold, the last first.
  std::int64_t fill(const Shape& s, std::int64_t i) {
    const std::int64_t block = s.first_position / s.block_queries + i / selection.lists;
    const std::int64_t page = block * s.block_queries / kPageTokens;
    const std::int64_t per_page = kPageTokens / s.group_tokens;
    const std::int64_t begin = selection.sinks_end(page) * per_page;
    const std::int64_t end = selection.window_begin(page) * per_page;
    std::int64_t count = 0;
    for (std::int64_t group = end - 1; group >= begin && count < s.capacity; --group) {
      if (random_bits(i, group) % 4 != 0) {
        groups[i * s.capacity + count++] = static_cast<std::int32_t>(group);
      }
    }
    return count;
  }
};

template <class Float>
struct Case {
  Shape shape;
  std::int64_t S;
  Lists lists;
  TestPages store;
  std::vector<float> k, v;
  std::vector<Float> q, dout, out, dq;
  std::vector<float> lse, delta, dk, dv, group_dk, group_dv;

  explicit Case(const Shape& s)
      : shape(s),
        S(s.first_position + s.T),
        lists(s),
        store({.tokens = S, .Hkv = s.Hkv, .D = s.D, .dtype = s.kv}),
        k(random_values(S * s.Hkv * s.D, 1)),
        v(random_values(S * s.Hkv * s.D, 2)),
        q(rounded_to<Float>(random_values(s.T * s.Hq * s.D, 3))),
        dout(rounded_to<Float>(random_values(s.T * s.Hq * s.D, 4))),
        out(q.size()),
        dq(q.size()),
        lse(static_cast<std::size_t>(s.Hq * s.T)),
        delta(lse.size()),
        dk(static_cast<std::size_t>((S - s.live_begin) * s.Hkv * s.D)),
        dv(dk.size()),
        group_dk(dk.size()),
        group_dv(dk.size()) {
    append();
  }

  void append() {
    kv_append({.kv = store.pages(),
               .k = view(std::as_const(k), {S, shape.Hkv, shape.D}),
               .v = view(std::as_const(v), {S, shape.Hkv, shape.D})});
  }

  AttentionForward forward() {
    return {.out = view(out, {shape.T, shape.Hq, shape.D}),
            .lse = view(lse, {shape.T, shape.Hq}),
            .q = view(std::as_const(q), {shape.T, shape.Hq, shape.D}),
            .kv = store.pages(),
            .first_position = shape.first_position,
            .scale = 0.5F,
            .selection = lists.selection};
  }

  AttentionBackward backward() {
    const std::int64_t live = S - shape.live_begin;
    return {.dq = view(dq, {shape.T, shape.Hq, shape.D}),
            .dk = view(dk, {live, shape.Hkv, shape.D}),
            .dv = view(dv, {live, shape.Hkv, shape.D}),
            .delta = view(delta, {shape.T, shape.Hq}),
            .group_dk = view(group_dk, {live, shape.Hkv, shape.D}),
            .group_dv = view(group_dv, {live, shape.Hkv, shape.D}),
            .dout = view(std::as_const(dout), {shape.T, shape.Hq, shape.D}),
            .out = view(std::as_const(out), {shape.T, shape.Hq, shape.D}),
            .lse = view(std::as_const(lse), {shape.T, shape.Hq}),
            .q = view(std::as_const(q), {shape.T, shape.Hq, shape.D}),
            .kv = store.pages(),
            .first_position = shape.first_position,
            .live_begin = shape.live_begin,
            .scale = 0.5F,
            .selection = lists.selection};
  }
};

// Windows alone; lists of one and of several tiles, in one word of bits and in two, of history, of
// live tokens and of both; queries that begin and end inside a block; one query; a block that is a
// page; groups of KV heads of 1, 3 and 4; chunks of two pages, begun in the second one, and blocks
// as large as they.
std::vector<Shape> shapes() {
  constexpr DType kB = DType::kBf16;
  return {
      {.T = 150, .first_position = 200, .Hq = 6, .Hkv = 2, .D = 16, .live_begin = 192},
      {.T = 70, .first_position = 330, .Hq = 4, .Hkv = 2, .live_begin = 320, .last_pages = 0},
      {.T = 100,
       .first_position = 500,
       .Hq = 3,
       .Hkv = 1,
       .D = 64,
       .live_begin = 64,
       .capacity = 8},
      {.T = 130,
       .first_position = 640,
       .Hq = 4,
       .Hkv = 1,
       .D = 24,
       .live_begin = 640,
       .capacity = 64,
       .kv = kB},
      {.T = 77,
       .first_position = 640,
       .Hq = 3,
       .Hkv = 1,
       .D = 48,
       .live_begin = 320,
       .capacity = 20,
       .kv = kB},
      {.T = 2,
       .first_position = 703,
       .Hq = 4,
       .Hkv = 2,
       .D = 32,
       .live_begin = 640,
       .group_tokens = 8,
       .capacity = 50,
       .kv = kB},
      {.T = 300, .Hq = 4, .Hkv = 4, .D = 10, .capacity = 9},
      {.T = 1,
       .first_position = 700,
       .Hq = 8,
       .Hkv = 2,
       .D = 32,
       .live_begin = 640,
       .capacity = 32},
      {.T = 40,
       .first_position = 900,
       .Hq = 4,
       .Hkv = 2,
       .live_begin = 128,
       .group_tokens = 8,
       .capacity = 100},
      {.T = 90,
       .first_position = 450,
       .Hq = 6,
       .Hkv = 2,
       .D = 16,
       .live_begin = 256,
       .capacity = 20,
       .per_query_head = true},
      {.T = 80,
       .first_position = 600,
       .Hq = 16,
       .Hkv = 2,
       .live_begin = 576,
       .group_tokens = 64,
       .block_queries = 64,
       .capacity = 3},
      {.T = 30,
       .first_position = 600,
       .Hq = 4,
       .Hkv = 2,
       .live_begin = 576,
       .group_tokens = 32,
       .block_queries = 4,
       .capacity = 12},
      {.T = 200,
       .first_position = 704,
       .Hq = 4,
       .Hkv = 2,
       .live_begin = 640,
       .first_pages = 2,
       .last_pages = 2,
       .chunk_pages = 2,
       .capacity = 12},
      {.T = 300,
       .first_position = 640,
       .Hq = 3,
       .Hkv = 1,
       .live_begin = 256,
       .first_pages = 0,
       .last_pages = 2,
       .chunk_pages = 2,
       .block_queries = 128,
       .capacity = 20},
  };
}

template <class Float>
class AttentionOverASelection : public testing::Test {};

using Floats = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(AttentionOverASelection, Floats);

TYPED_TEST(AttentionOverASelection, AgreesWithTheReference) {
  for (const Shape& shape : shapes()) {
    Case<TypeParam> truth(shape);
    ref::attention_forward(truth.forward());
    ref::attention_backward(truth.backward());
    with_each_isa([&] {
      Case<TypeParam> fast(shape);
      attention_forward(fast.forward());
      expect_near(fast.out, truth.out, tolerance<TypeParam>(2e-6F), "out of " + describe(shape));
      expect_near(fast.lse, truth.lse, 2e-6F, "lse of " + describe(shape));
      const std::vector<TypeParam> out = std::exchange(fast.out, truth.out);
      attention_backward(fast.backward());
      expect_near(fast.dq, truth.dq, tolerance<TypeParam>(1e-5F), "dq of " + describe(shape));
      const float bound = attention_tolerance<TypeParam>(shape.kv, shape.D, 2e-5F);
      expect_near(fast.dk, truth.dk, bound, "dk of " + describe(shape));
      expect_near(fast.dv, truth.dv, bound, "dv of " + describe(shape));
      expect_near_together(
          out, truth.out, tolerance<TypeParam>(1e-5F), "out of " + describe(shape));
      expect_near_together(
          fast.dq, truth.dq, tolerance<TypeParam>(1e-4F), "dq of " + describe(shape));
      expect_near_together(fast.dk, truth.dk, std::max(bound, 1e-4F), "dk of " + describe(shape));
      expect_near_together(fast.dv, truth.dv, std::max(bound, 1e-4F), "dv of " + describe(shape));
    });
  }
}

TYPED_TEST(AttentionOverASelection, GivesTheSameBitsForAnyThreadCount) {
  for (const Shape& shape : shapes()) {
    use_threads(1);
    Case<TypeParam> one(shape);
    attention_forward(one.forward());
    attention_backward(one.backward());
    for (const int threads : {2, 3, 8}) {
      use_threads(threads);
      Case<TypeParam> many(shape);
      attention_forward(many.forward());
      attention_backward(many.backward());
      EXPECT_EQ(widened(many.out), widened(one.out)) << describe(shape);
      EXPECT_EQ(widened(many.dq), widened(one.dq)) << describe(shape);
      EXPECT_EQ(many.dk, one.dk) << describe(shape);
      EXPECT_EQ(many.dv, one.dv) << describe(shape);
    }
  }
  use_threads(available_cores());
}

// All pages that are not seen anyway are listed, in groups: dense attention in another order.
TYPED_TEST(AttentionOverASelection, OfEverythingIsDense) {
  const Shape shape{
      .T = 64, .first_position = 384, .Hq = 4, .Hkv = 2, .live_begin = 256, .capacity = 16};
  Case<TypeParam> listed(shape);
  listed.lists.seen.assign(listed.lists.seen.size(), ~std::uint64_t{0});
  listed.lists.counts.assign(listed.lists.counts.size(), 16);
  for (std::size_t i = 0; i < listed.lists.groups.size(); ++i) {
    listed.lists.groups[i] = static_cast<std::int32_t>(4 + i % 16);  // pages 1 to 4 of 0 to 6
  }
  Case<TypeParam> dense(shape);
  dense.lists.selection = {};
  for (Case<TypeParam>* c : {&listed, &dense}) {
    attention_forward(c->forward());
    attention_backward(c->backward());
  }
  expect_near(listed.out, dense.out, tolerance<TypeParam>(2e-6F), "out");
  expect_near(listed.dq, dense.dq, tolerance<TypeParam>(2e-5F), "dq");
  expect_near(listed.dk, dense.dk, tolerance<TypeParam>(2e-5F), "dk");
  expect_near(listed.dv, dense.dv, tolerance<TypeParam>(2e-5F), "dv");
}

TYPED_TEST(AttentionOverASelection, ARowHasTheSameBitsHoweverManyAreComputedWithIt) {
  for (const Shape& shape : shapes()) {
    Case<TypeParam> whole(shape);
    attention_forward(whole.forward());
    Case<TypeParam> parts(shape);
    const Selection& all = whole.lists.selection;
    for (std::int64_t t = 0; t < shape.T;) {
      const std::int64_t count = std::min<std::int64_t>(1 + t % 19, shape.T - t);
      auto args = parts.forward();
      std::vector<float> lse(static_cast<std::size_t>(shape.Hq * count));
      args.q = args.q.rows(t, count);
      args.out = args.out.rows(t, count);
      args.lse = view(lse, {count, shape.Hq});
      args.first_position += t;
      const std::int64_t skipped =
          args.first_position / all.block_queries - shape.first_position / all.block_queries;
      args.selection.groups += skipped * all.lists * all.capacity;
      args.selection.counts += skipped * all.lists;
      args.selection.seen += t * all.lists * all.words();
      attention_forward(args);
      t += count;
    }
    EXPECT_EQ(widened(parts.out), widened(whole.out)) << describe(shape);
  }
}

// The queries [first, first + count) of a pass.
AttentionBackward part_of(AttentionBackward args, std::int64_t first, std::int64_t count) {
  const Selection all = args.selection;
  const std::int64_t T = args.q.dim(0);
  for (TensorView* view : {&args.dq, &args.delta}) {
    *view = view->rows(first, count);
  }
  for (ConstTensorView* view : {&args.dout, &args.out, &args.lse, &args.q}) {
    *view = view->rows(first, count);
  }
  const std::int64_t skipped =
      (args.first_position + first) / all.block_queries - args.first_position / all.block_queries;
  args.first_position += first;
  args.begins = first + count == T;
  args.ends = first == 0;
  args.selection.groups += skipped * all.lists * all.capacity;
  args.selection.counts += skipped * all.lists;
  args.selection.seen += first * all.lists * all.words();
  return args;
}

TYPED_TEST(AttentionOverASelection, CuttingTheBackwardPassChangesNoBit) {
  for (const Shape& shape : shapes()) {
    if (shape.first_position % 64 != 0 || shape.capacity == 0) {
      continue;
    }
    Case<TypeParam> whole(shape);
    attention_forward(whole.forward());
    Case<TypeParam> parts(shape);
    parts.out = whole.out;
    parts.lse = whole.lse;
    attention_backward(whole.backward());
    const std::int64_t step = 2 * whole.lists.selection.block_queries;
    for (std::int64_t first = (shape.T - 1) / step * step; first >= 0; first -= step) {
      attention_backward(part_of(parts.backward(), first, std::min(step, shape.T - first)));
    }
    EXPECT_EQ(widened(parts.dq), widened(whole.dq)) << describe(shape);
    EXPECT_EQ(parts.dk, whole.dk) << describe(shape);
    EXPECT_EQ(parts.dv, whole.dv) << describe(shape);
  }
}

// Two forms of all pages as a tiered store has them: of history alone the closed one, of the last
// page alone the appended one.
template <class Float>
struct TwoForms {
  Case<Float> other;  // the closed form: other values, so that taking the wrong one shows
  std::vector<std::byte*> appended, closed;

  explicit TwoForms(const Case<Float>& c) : other(c.shape) {
    other.k = random_values(static_cast<std::int64_t>(other.k.size()), 11);
    other.v = random_values(static_cast<std::int64_t>(other.v.size()), 12);
    other.append();
    const std::int64_t pages = (c.S + kPageTokens - 1) / kPageTokens;
    const KvPages a = c.store.pages();
    const KvPages b = other.store.pages();
    appended.assign(a.pages, a.pages + pages);
    closed.assign(b.pages, b.pages + pages);
    std::fill_n(appended.begin(), c.shape.first_position / kPageTokens, nullptr);
    if (c.S % kPageTokens != 0) {
      closed.back() = nullptr;
    }
  }

  template <class Args>
  [[nodiscard]] Args of(Args args) const {
    args.kv.pages = appended.data();
    args.kv.closed = closed.data();
    return args;
  }
};

TYPED_TEST(AttentionOverASelection, ReadsOtherChunksAsTheyClosed) {
  for (const Shape& shape : shapes()) {
    Case<TypeParam> truth(shape);
    const TwoForms<TypeParam> forms(truth);
    ref::attention_forward(forms.of(truth.forward()));
    ref::attention_backward(forms.of(truth.backward()));
    with_each_isa([&] {
      Case<TypeParam> fast(shape);
      attention_forward(forms.of(fast.forward()));
      expect_near(fast.out, truth.out, tolerance<TypeParam>(2e-6F), "out of " + describe(shape));
      expect_near(fast.lse, truth.lse, 2e-6F, "lse of " + describe(shape));
      fast.out = truth.out;
      attention_backward(forms.of(fast.backward()));
      expect_near(fast.dq, truth.dq, tolerance<TypeParam>(1e-5F), "dq of " + describe(shape));
      expect_near(fast.dk, truth.dk, 2e-5F, "dk of " + describe(shape));
      expect_near(fast.dv, truth.dv, 2e-5F, "dv of " + describe(shape));
    });
  }
}

// Page by page of queries, over pages of one form that are those which such queries read: the
// gradients of what was rounded are those of what was appended.
TYPED_TEST(AttentionOverASelection, GradientsPassStraightThroughTheRounding) {
  for (const Shape& shape : shapes()) {
    if (shape.first_position % 64 != 0) {
      continue;
    }
    Case<TypeParam> whole(shape);
    const TwoForms<TypeParam> forms(whole);
    attention_forward(forms.of(whole.forward()));
    attention_backward(forms.of(whole.backward()));
    Case<TypeParam> parts(shape);
    const auto by_page = [&](bool is_forward) {
      for (std::int64_t first = (shape.T - 1) / 64 * 64; first >= 0; first -= 64) {
        std::vector<std::byte*> table = forms.closed;
        const auto own = static_cast<std::size_t>((shape.first_position + first) / 64);
        table[own] = forms.appended[own];
        auto part = part_of(parts.backward(), first, std::min<std::int64_t>(64, shape.T - first));
        part.kv.pages = table.data();
        auto forward = parts.forward();
        if (is_forward) {
          attention_forward({.out = forward.out.rows(first, part.q.dim(0)),
                             .lse = forward.lse.rows(first, part.q.dim(0)),
                             .q = part.q,
                             .kv = part.kv,
                             .first_position = part.first_position,
                             .scale = part.scale,
                             .selection = part.selection});
        } else {
          attention_backward(part);
        }
      }
    };
    by_page(true);
    EXPECT_EQ(widened(parts.out), widened(whole.out)) << describe(shape);
    by_page(false);
    EXPECT_EQ(widened(parts.dq), widened(whole.dq)) << describe(shape);
    EXPECT_EQ(parts.dk, whole.dk) << describe(shape);
    EXPECT_EQ(parts.dv, whole.dv) << describe(shape);
  }
}

TEST(AttentionOverASelectionPages, MayBeNullWhereNoQuerySeesThem) {
  const Shape shape{.T = 40, .first_position = 400, .Hq = 2, .Hkv = 1, .live_begin = 384};
  Case<float> c(shape);
  attention_forward(c.forward());
  attention_backward(c.backward());
  const std::vector<float> out = c.out;
  const std::vector<float> dq = c.dq;
  const KvPages all = c.store.pages();
  std::vector<std::byte*> table(all.pages, all.pages + 7);
  for (const int page : {1, 2, 3, 4}) {  // the first and the last are seen, and page 6 itself
    table[static_cast<std::size_t>(page)] = nullptr;
  }
  auto forward = c.forward();
  auto backward = c.backward();
  forward.kv.pages = table.data();
  backward.kv.pages = table.data();
  attention_forward(forward);
  attention_backward(backward);
  EXPECT_EQ(c.out, out);
  EXPECT_EQ(c.dq, dq);
}

// What later rows of a block open is appended to the list, and moves no bit of earlier rows.
TEST(AttentionOverASelectionBits, DoNotDependOnWhatLaterRowsOpened) {
  const Shape shape{
      .T = 16, .first_position = 640, .Hq = 4, .Hkv = 1, .live_begin = 640, .capacity = 24};
  Case<float> full(shape);
  constexpr std::int64_t kEarly = 9;  // rows that know the first five groups alone
  ASSERT_GT(full.lists.counts[0], 5);
  for (std::int64_t t = 0; t < kEarly; ++t) {
    full.lists.seen[t] &= 31;
  }
  Case<float> begun(shape);
  std::ranges::copy(full.lists.seen, begun.lists.seen.begin());
  begun.lists.counts[0] = 5;
  attention_forward(full.forward());
  attention_forward(begun.forward());
  const std::size_t early = kEarly * 4 * 8;
  EXPECT_EQ(std::vector(begun.out.begin(), begun.out.begin() + early),
            std::vector(full.out.begin(), full.out.begin() + early));
  EXPECT_NE(begun.out, full.out);
}

TEST(AttentionOverASelectionErrors, NameWhatDoesNotFit) {
  const Shape shape{
      .T = 16, .first_position = 640, .Hq = 4, .Hkv = 2, .live_begin = 640, .capacity = 24};
  const auto error = [&](auto change) {
    Case<float> c(shape);
    change(c.lists);
    return error_of(ErrorCode::kInvalidArgument, [&] { attention_forward(c.forward()); });
  };
  const std::string outside = " is not between the pages that queries in page 10 see anyway";
  const std::string where = "[attention_forward] ";
  EXPECT_EQ(error([](Lists& l) { l.groups[0] = 3; }), where + "group 3" + outside);
  EXPECT_EQ(error([](Lists& l) { l.groups[0] = 36; }), where + "group 36" + outside);
  EXPECT_EQ(error([](Lists& l) { l.groups[0] = -1; }), where + "group -1" + outside);
  EXPECT_EQ(error([](Lists& l) { l.groups[1] = l.groups[0]; }),
            where + fmt::format("group {} is listed twice", Case<float>(shape).lists.groups[0]));
  EXPECT_EQ(error([](Lists& l) { l.counts[1] = 25; }),
            where + "a list of 25 groups with room for 24");
  EXPECT_EQ(error([](Lists& l) { l.counts[1] = -1; }),
            where + "a list of -1 groups with room for 24");
  EXPECT_EQ(error([](Lists& l) { l.selection.group_tokens = 12; }),
            where + "groups of 12 tokens: it must be 8, 16, 32 or 64");
  EXPECT_EQ(error([](Lists& l) { l.selection.block_queries = 24; }),
            where + "blocks of 24 queries do not divide a chunk of 64");
  EXPECT_EQ(error([](Lists& l) { l.selection.lists = 3; }),
            where + "3 lists a block, neither 2 (KV heads) nor 4 (query heads)");
  EXPECT_EQ(error([](Lists& l) { l.selection.capacity = -1; }),
            where + "1 first pages, 1 last pages and -1 groups: none may be negative");
  EXPECT_EQ(error([](Lists& l) { l.selection.seen = nullptr; }),
            where + "a selection of groups without its lists");
}

}  // namespace
}  // namespace longtune::ops
