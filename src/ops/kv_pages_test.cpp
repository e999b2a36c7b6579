#include "ops/kv_pages.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "device/threads.h"
#include "ops/test_pages.h"
#include "ops/test_values.h"

namespace longtune::ops {
namespace {

TEST(KvAppend, PutsARowIntoItsPageHeadAndSlot) {
  TestPages store({.tokens = 130, .Hkv = 2, .D = 3, .dtype = DType::kF32});
  const std::vector<float> k = random_values(5 * 2 * 3, 1);
  const std::vector<float> v = random_values(5 * 2 * 3, 2);
  kv_append({.kv = store.pages(),
             .k = view(k, {5, 2, 3}),
             .v = view(v, {5, 2, 3}),
             .first_position = 61});
  const KvPages kv = store.pages();
  for (std::int64_t t = 0; t < 5; ++t) {
    const std::int64_t position = 61 + t;  // crosses from page 0 to page 1
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto* keys = reinterpret_cast<const float*>(kv.keys(position / 64, h));
      const auto* values = reinterpret_cast<const float*>(kv.values(position / 64, h));
      for (std::int64_t d = 0; d < 3; ++d) {
        EXPECT_EQ(keys[position % 64 * 3 + d], k[static_cast<std::size_t>((t * 2 + h) * 3 + d)]);
        EXPECT_EQ(values[position % 64 * 3 + d], v[static_cast<std::size_t>((t * 2 + h) * 3 + d)]);
      }
    }
  }
}

TEST(KvAppend, RoundsLikeTheReferenceAndLeavesOtherTokensAlone) {
  const std::vector<float> k = random_values(7 * 3 * 10, 1);
  const std::vector<float> v = random_values(7 * 3 * 10, 2);
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    TestPages fast({.tokens = 128, .Hkv = 3, .D = 10, .dtype = stored});
    TestPages truth({.tokens = 128, .Hkv = 3, .D = 10, .dtype = stored});
    KvAppend args{.kv = fast.pages(),
                  .k = view(k, {7, 3, 10}),
                  .v = view(v, {7, 3, 10}),
                  .first_position = 60};
    use_threads(3);
    kv_append(args);
    args.kv = truth.pages();
    ref::kv_append(args);
    EXPECT_EQ(fast.memory(), truth.memory()) << name_of(stored);
  }
}

TEST(KvAppend, NamesWhatDoesNotFit) {
  TestPages store({.tokens = 64, .Hkv = 2, .D = 4, .dtype = DType::kBf16});
  const std::vector<float> k(2 * 2 * 4);
  KvAppend args{.kv = store.pages(), .k = view(k, {2, 2, 4}), .v = view(k, {2, 1, 8})};
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kv_append(args); }),
            "[kv_append] v f32 (2, 1, 8) does not match k f32 (2, 2, 4): expected f32 (2, 2, 4)");
  args.v = args.k;
  args.kv.D = 8;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kv_append(args); }),
            "[kv_append] k f32 (2, 2, 4) does not match the pages of 2 heads of 8 values");
  args.kv.D = 4;
  args.first_position = -1;
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [&] { kv_append(args); }),
            "[kv_append] first position -1 is negative");
}

}  // namespace
}  // namespace longtune::ops
