#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace {

bool can_exchange = true;

}  // namespace

// Takes the place of the C library's, so that a test can have a file system without exchange.
extern "C" int renameat2(int old_directory,
                         const char* old_name,
                         int new_directory,
                         const char* new_name,
                         unsigned flags) noexcept {
  if (!can_exchange && (flags & RENAME_EXCHANGE) != 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(
      syscall(SYS_renameat2, old_directory, old_name, new_directory, new_name, flags));
}

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

// While it lives, files cannot grow beyond `bytes`: a full disk, but for the reason.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_ = nullptr;
};

TEST(AtomicFile, ReportsAWriteThatTheSystemRefusesHalfWay) {
  const TemporaryDirectory directory;
  const fs::path path = directory.write("out", "old");
  std::string message;
  {
    const FileSizeLimit limit(2);
    try {
      AtomicFile(path).write("text");
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_EQ(message, "[file] cannot write " + path.string() + ": File too large");
  EXPECT_EQ(contents(path), "old");
  EXPECT_EQ(entries(directory.path()), 1);
}

// The partial name that a writer of "out" will try first, worked out from that of a probe.
fs::path next_partial_of_out(const fs::path& directory) {
  const TemporaryDirectory scratch;
  const AtomicFile probe(scratch.path() / "out");
  const std::string name = fs::directory_iterator(scratch.path())->path().filename();
  const std::size_t number = name.rfind('-') + 1;
  return directory / (name.substr(0, number) + std::to_string(std::stoi(name.substr(number)) + 1));
}

TEST(AtomicFile, LeavesAloneWhatHasItsPartialName) {
  const TemporaryDirectory directory;
  const fs::path victim = directory.write("victim", "precious");
  fs::create_symlink(victim, next_partial_of_out(directory.path()));
  write_file(directory.path() / "out", "text");
  EXPECT_EQ(contents(victim), "precious");
  EXPECT_EQ(contents(directory.path() / "out"), "text");
  EXPECT_FALSE(fs::is_symlink(directory.path() / "out"));

  fs::create_directory(next_partial_of_out(directory.path()));
  AtomicDirectory made(directory.path() / "out");
  EXPECT_TRUE(fs::is_empty(made.partial()));
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

TEST(AtomicDirectory, ReplacesWhereNamesCannotBeExchanged) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "step-1";
  can_exchange = false;
  for (const char* text : {"first", "second"}) {
    AtomicDirectory made(path);
    write_file(made.partial() / "a", text);
    made.commit();
    EXPECT_EQ(contents(path / "a"), text);
  }
  can_exchange = true;
  EXPECT_EQ(entries(directory.path()), 1);
}

TEST(AtomicDirectory, ReportsThatItsFilesAreGone) {
  const TemporaryDirectory directory;
  AtomicDirectory made(directory.path() / "step-1");
  fs::remove_all(made.partial());
  expect_error([&] { made.commit(); }, ErrorCode::kIo, "step-1: No such file or directory");
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
