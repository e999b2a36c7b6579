#include "io/spill_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

constexpr std::int64_t kRecord = 5000;  // not a whole number of blocks

AlignedBuffer filled(const SpillFile& file, int value) {
  AlignedBuffer buffer(file.buffer_bytes());
  std::memset(buffer.data(), value, static_cast<std::size_t>(file.buffer_bytes()));
  return buffer;
}

TEST(SpillFile, GivesBackWhatWasWrittenInAnyOrder) {
  const TemporaryDirectory directory;
  SpillFile file(directory.path(), kRecord);
  EXPECT_EQ(file.buffer_bytes(), 8192);
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 6; ++i) {
    buffers.push_back(filled(file, 10 + i));
    (void)file.write((i * 5) % 6, buffers.back());
  }
  const AlignedBuffer back(file.buffer_bytes());
  for (int i = 5; i >= 0; --i) {
    file.wait(file.read((i * 5) % 6, back));
    EXPECT_EQ(std::to_integer<int>(back.data()[0]), 10 + i);
    EXPECT_EQ(std::to_integer<int>(back.data()[kRecord - 1]), 10 + i);
  }
  EXPECT_EQ(file.traffic().written, 6 * 8192);
  EXPECT_EQ(file.traffic().read, 6 * 8192);
}

TEST(SpillFile, HasNoName) {
  const TemporaryDirectory directory;
  SpillFile file(directory.path(), kRecord);
  file.wait(file.write(3, filled(file, 1)));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SpillFile, ReadingWhatWasNeverWrittenIsAnError) {
  const TemporaryDirectory directory;
  SpillFile file(directory.path(), kRecord);
  const AlignedBuffer back(file.buffer_bytes());
  expect_error([&] { file.wait(file.read(2, back)); }, ErrorCode::kIo, "the file ends there");
  // Nothing after it passes for done.
  expect_error([&] { file.wait(file.write(0, back)); }, ErrorCode::kIo, "the file ends there");
}

TEST(SpillFile, AFullDiskIsOneClearError) {
  const TemporaryDirectory directory;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 3 * 8192;
  setrlimit(RLIMIT_FSIZE, &small);
  {
    SpillFile file(directory.path(), kRecord);
    const AlignedBuffer buffer = filled(file, 1);
    file.wait(file.write(2, buffer));
    expect_error([&] { file.wait(file.write(3, buffer)); },
                 ErrorCode::kIo,
                 "[spill] writing 8 KiB of keys and values at 24 KiB of a file in " +
                     directory.path().string() + ": File too large");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

TEST(SpillFile, NamesTheDirectoryThatCannotHoldIt) {
  expect_error([] { SpillFile file("/nowhere/at/all", kRecord); },
               ErrorCode::kIo,
               "[spill] no file can be made in /nowhere/at/all: No such file or directory");
}

}  // namespace
}  // namespace longtune
