#include "io/reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

TEST(File, ReadsRangesAndRefusesThoseBeyond) {
  const TemporaryDirectory directory;
  const auto path = directory.write("x", "0123456789");
  const File file(path);
  EXPECT_EQ(file.size(), 10);
  std::array<std::byte, 4> bytes{};
  file.read_at(6, bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 4), "6789");
  expect_error([&] { file.read_at(7, bytes); },
               ErrorCode::kBadInput,
               "x: ends at byte 10, but 4 bytes are needed from byte 7 on");
  expect_error([&] { file.read_at(-1, bytes); }, ErrorCode::kBadInput, "ends at byte 10");
}

TEST(File, NoticesThatAFileShrank) {
  const TemporaryDirectory directory;
  const auto path = directory.write("x", "0123456789");
  const File file(path);
  std::filesystem::resize_file(path, 8);
  std::array<std::byte, 4> bytes{};
  expect_error([&] { file.read_at(6, bytes); },
               ErrorCode::kBadInput,
               "ends at byte 8; it had 10 bytes when it was opened");
}

TEST(File, RefusesWhatIsNoFile) {
  const TemporaryDirectory directory;
  expect_error([&] { File(directory.path() / "none"); },
               ErrorCode::kBadInput,
               "none: No such file or directory");
  expect_error([&] { File{directory.path()}; }, ErrorCode::kBadInput, "is no regular file");
  const auto pipe = directory.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_error([&] { File{pipe}; }, ErrorCode::kBadInput, "is no regular file");
}

TEST(ReadWhole, ReadsFilesUpToALimit) {
  const TemporaryDirectory directory;
  const auto path = directory.write("x", std::string("0\0 2", 4));
  EXPECT_EQ(read_whole(path, 4), std::string("0\0 2", 4));
  EXPECT_EQ(read_whole(directory.write("empty", ""), 4), "");
  expect_error([&] { (void)read_whole(path, 3); },
               ErrorCode::kBadInput,
               "x: has 4 bytes; at most 3 are read");
}

TEST(MemoryReader, BehavesAsAFile) {
  const std::string text = "abc";
  const MemoryReader reader("m", std::as_bytes(std::span(text)));
  std::array<std::byte, 2> bytes{};
  reader.read_at(1, bytes);
  EXPECT_EQ(static_cast<char>(bytes[1]), 'c');
  expect_error([&] { reader.read_at(2, bytes); }, ErrorCode::kBadInput, "m: ends at byte 3");
}

}  // namespace
}  // namespace longtune
