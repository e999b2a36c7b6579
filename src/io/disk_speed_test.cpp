#include "io/disk_speed.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

TEST(DiskSpeed, IsMeasuredAndLeavesNothingBehind) {
  const TemporaryDirectory scratch;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1'000'000}}) {
    const DiskSpeed speed = measure_disk(scratch.path(), 16384, bytes);
    EXPECT_GT(speed.write_bytes_per_s, 0);
    EXPECT_GT(speed.read_bytes_per_s, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(DiskSpeed, NamesADirectoryThatTakesNoFileAndRecordsOfNothing) {
  const TemporaryDirectory scratch;
  expect_error([&] { (void)measure_disk(scratch.path(), 0, 4096); },
               ErrorCode::kInvalidArgument,
               "records of 0");
  expect_error([] { (void)measure_disk("/proc/none", 4096, 4096); }, ErrorCode::kIo, "/proc/none");
}

}  // namespace
}  // namespace longtune
