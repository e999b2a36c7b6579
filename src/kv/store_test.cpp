#include "kv/store.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longtune {
namespace {

KvShape shape_of(std::int64_t capacity) {
  return {.L = 3, .Hkv = 2, .D = 16, .capacity = capacity};
}

TEST(KvStore, TakesWholePagesForEachLayer) {
  Arena arena = Arena::planning();
  const KvStore store(shape_of(65), arena);
  EXPECT_EQ(arena.used(), 3 * 2 * ops::kv_page_bytes(2, 16, DType::kBf16));
  EXPECT_EQ(store.layer(2, 65).tokens, 65);
  expect_error([&] { (void)store.layer(0, 66); },
               ErrorCode::kInvalidArgument,
               "66 tokens do not fit the capacity of 65");
}

TEST(KvStore, RefusesAbsurdContexts) {
  for (const std::int64_t tokens :
       {std::int64_t{-1}, std::int64_t{1} << 31U, std::numeric_limits<std::int64_t>::max()}) {
    Arena arena = Arena::planning();
    expect_error(
        [&] { const KvStore store(shape_of(tokens), arena); },
        ErrorCode::kInvalidArgument,
        fmt::format("[kv_store] a context of {} tokens is not from 0 to 2147483647", tokens));
  }
}

}  // namespace
}  // namespace longtune
