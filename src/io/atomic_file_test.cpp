#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ptrdiff_t entries(const fs::path& path) {
  return std::distance(fs::directory_iterator(path), fs::directory_iterator());
}

TEST(AtomicFile, AppearsAtCommitAndNotBefore) {
  const TemporaryDirectory directory;
  const fs::path path = directory.write("out.txt", "old");
  AtomicFile file(path);
  file.write("new ");
  EXPECT_EQ(contents(path), "old");
  file.write("text");
  file.commit();
  EXPECT_EQ(contents(path), "new text");
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  const TemporaryDirectory directory;
  { AtomicFile(directory.path() / "out.txt").write("text"); }
  EXPECT_EQ(entries(directory.path()), 0);
}

TEST(AtomicFile, NamesPathAndReasonWhereTheSystemRefuses) {
  const TemporaryDirectory directory;
  expect_error([&] { AtomicFile(directory.path() / "none" / "out.txt"); },
               ErrorCode::kIo,
               "none/out.txt: No such file or directory");
  fs::create_directory(directory.path() / "taken");
  AtomicFile file(directory.path() / "taken");
  expect_error([&] { file.commit(); }, ErrorCode::kIo, "taken: Is a directory");
}

TEST(AtomicFile, ReportsAFullDisk) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "no /dev/full";
  }
  // The partial file of this name is a link to the device that is always full.
  const TemporaryDirectory directory;
  AtomicFile probe(directory.path() / "probe");
  const std::string probe_name = fs::directory_iterator(directory.path())->path().filename();
  const std::size_t dash = probe_name.rfind('-');
  const int next = std::stoi(probe_name.substr(dash + 1)) + 1;
  const std::string mark = probe_name.substr(std::string(".probe").size(), dash + 1 - 6);
  fs::create_symlink("/dev/full", directory.path() / (".out" + mark + std::to_string(next)));
  AtomicFile file(directory.path() / "out");
  expect_error([&] { file.write("text"); }, ErrorCode::kIo, "out: No space left on device");
}

TEST(AtomicDirectory, AppearsAtCommitAndReplaces) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "step-1";
  for (const char* text : {"first", "second"}) {
    AtomicDirectory made(path);
    write_file(made.partial() / "a", text);
    made.commit();
    EXPECT_EQ(contents(path / "a"), text);
  }
  {
    const AtomicDirectory given_up(path);
    write_file(given_up.partial() / "a", "third");
  }
  EXPECT_EQ(contents(path / "a"), "second");
  EXPECT_EQ(entries(directory.path()), 1);
  expect_error([&] { AtomicDirectory(directory.path() / "none" / "x"); },
               ErrorCode::kIo,
               "none/x: No such file or directory");
}

TEST(RemoveDirectory, RemovesItWholeAndNamesWhatItCannot) {
  const TemporaryDirectory scratch;
  (void)scratch.write("old/deep/file", "x");
  remove_directory(scratch.path() / "old");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
  expect_error([&] { remove_directory(scratch.path() / "old"); }, ErrorCode::kIo, "old");
}

TEST(RemovePartials, RemovesWhatKilledWritersLeft) {
  const TemporaryDirectory directory;
  directory.write(".step-3.partial-17-0/a", "");
  directory.write(".other", "");
  directory.write("kept", "");
  remove_partials(directory.path());
  EXPECT_EQ(entries(directory.path()), 2);
  expect_error([&] { remove_partials(directory.path() / "none"); }, ErrorCode::kIo, "none");
}

}  // namespace
}  // namespace longtune
