#include "device/scratch_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "support/expect_error.h"

namespace longtune {
namespace {

TEST(ScratchMemory, IsKeptUntilMoreIsNeeded) {
  ScratchMemory scratch;
  std::byte* first = scratch.at_least(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % ScratchMemory::kAlignment, 0U);
  std::fill_n(first, 100, std::byte{7});
  EXPECT_EQ(scratch.at_least(50), first);
  EXPECT_EQ(first[99], std::byte{7});
  std::byte* more = scratch.at_least(ScratchMemory::kAlignment + 1);
  std::fill_n(more, ScratchMemory::kAlignment + 1, std::byte{1});
  EXPECT_EQ(scratch.at_least(100), more);
}

TEST(ScratchMemory, SaysWhatTheSystemRefused) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends the program instead of refusing memory";
#endif
  ScratchMemory scratch;
  expect_error([&] { (void)scratch.at_least(std::int64_t{1} << 55); },
               ErrorCode::kIo,
               "[scratch] the system refused 33554432.00 GiB of memory");
}

}  // namespace
}  // namespace longtune
