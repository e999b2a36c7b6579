#include "io/spill_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

using Kind = BlockOperation::Kind;

constexpr std::int64_t kRecord = 5000;  // not a whole number of blocks
constexpr std::int64_t kPadded = 8192;

AlignedBuffer filled(const SpillFile& file, int value) {
  AlignedBuffer buffer(file.buffer_bytes());
  std::memset(buffer.data(), value, static_cast<std::size_t>(file.buffer_bytes()));
  return buffer;
}

int value_of(const AlignedBuffer& buffer) {
  return std::to_integer<int>(buffer.data()[kRecord - 1]);
}

// Another BlockIo that changes operations before they start.
class Changed final : public BlockIo {
 public:
  using Change = std::function<void(BlockOperation&)>;

  Changed(std::unique_ptr<BlockIo> inner, Change change)
      : inner_(std::move(inner)), change_(std::move(change)) {}

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }

  [[nodiscard]] int start(const BlockOperation& operation) override {
    BlockOperation changed = operation;
    change_(changed);
    return inner_->start(changed);
  }

 private:
  std::unique_ptr<BlockIo> inner_;
  Change change_;
};

// Does nothing by itself: a test says what is done, when, with which result.
class Held final : public BlockIo {
 public:
  explicit Held(Done done) : done_(std::move(done)) {}

  [[nodiscard]] std::string_view name() const override { return "held"; }

  [[nodiscard]] int start(const BlockOperation& operation) override {
    if (refusal != 0) {
      return refusal;
    }
    operations.push_back(operation);
    return 0;
  }

  // Ends the operation numbered i of those in flight.
  void end(std::size_t i, std::int64_t result) {
    const BlockOperation operation = operations.at(i);
    operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
    done_(operation.owner, result);
  }

  void end_all() {
    while (!operations.empty()) {
      end(0, operations.front().bytes);
    }
  }

  std::vector<BlockOperation> operations;
  int refusal = 0;

 private:
  Done done_;
};

// A file whose requests a test ends by hand.
class HeldFile {
 public:
  ~HeldFile() { io_->end_all(); }

  SpillFile& file() { return file_; }

  Held& io() { return *io_; }

 private:
  TemporaryDirectory directory_;
  Held* io_ = nullptr;
  SpillFile file_{directory_.path(), kRecord, [this](int, BlockIo::Done done) {
                    auto io = std::make_unique<Held>(std::move(done));
                    io_ = io.get();
                    return io;
                  }};
};

// Whatever way requests are done.
class SpillFileTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (is_ring() && !make_ring_io(0, [](void*, std::int64_t) {})) {
      GTEST_SKIP() << "no io_uring here";
    }
  }

  [[nodiscard]] static bool is_ring() { return std::string(GetParam()) == "io_uring"; }

  [[nodiscard]] static std::unique_ptr<BlockIo> make(int descriptor, BlockIo::Done done) {
    return is_ring() ? make_ring_io(descriptor, std::move(done))
                     : make_thread_io(descriptor, std::move(done));
  }

  [[nodiscard]] static BlockIoMaker changed(const Changed::Change& change) {
    return [change](int descriptor, BlockIo::Done done) {
      return std::make_unique<Changed>(make(descriptor, std::move(done)), change);
    };
  }

  // Random requests, each checked against what was asked for before it; many are in flight, and
  // records are few, so that most have others on their record in flight.
  static void expect_order(SpillFile& file);

  const TemporaryDirectory directory_;
};

void SpillFileTest::expect_order(SpillFile& file) {
  constexpr std::uint64_t kRecords = 10;
  constexpr std::uint64_t kSlots = 50;

  struct Slot {
    SpillFile::Ticket ticket = 0;
    int read = -1;  // what it must come to
  };

  std::vector<AlignedBuffer> buffers;
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    buffers.emplace_back(file.buffer_bytes() + AlignedBuffer::kAlignment);
  }
  std::vector<Slot> slots(kSlots);
  std::vector<int> oracle(kRecords, -1);
  const auto settle = [&](std::uint64_t i) {
    file.wait(slots[i].ticket);
    EXPECT_TRUE(file.is_done(slots[i].ticket));
    if (slots[i].read >= 0) {
      ASSERT_EQ(std::to_integer<int>(buffers[i].data()[1]), slots[i].read);
      ASSERT_EQ(value_of(buffers[i]), slots[i].read);
    }
  };
  for (std::uint64_t i = 0; i < 1500; ++i) {
    const std::uint64_t slot = random_bits(1, i) % kSlots;
    const auto record = static_cast<std::int64_t>(random_bits(2, i) % kRecords);
    int& known = oracle[static_cast<std::size_t>(record)];
    settle(slot);
    slots[slot].read = -1;
    if (known < 0 || random_bits(3, i) % 2 == 0) {
      known = static_cast<int>(random_bits(4, i) % 256);
      std::memset(buffers[slot].data(), known, static_cast<std::size_t>(file.buffer_bytes()));
      slots[slot].ticket = file.write(record, buffers[slot]);
    } else {
      slots[slot].read = known;
      slots[slot].ticket = file.read(record, buffers[slot]);
    }
  }
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
    settle(slot);
  }
}

TEST_P(SpillFileTest, GivesBackWhatWasWrittenInAnyOrder) {
  SpillFile file(directory_.path(), kRecord, make);
  EXPECT_EQ(file.method(), GetParam());
  EXPECT_EQ(file.buffer_bytes(), kPadded);
  std::vector<AlignedBuffer> buffers;
  for (int i = 0; i < 6; ++i) {
    buffers.push_back(filled(file, 10 + i));
    (void)file.write((i * 5) % 6, buffers.back());
  }
  const AlignedBuffer back(file.buffer_bytes());
  for (int i = 5; i >= 0; --i) {
    file.wait(file.read((i * 5) % 6, back));
    EXPECT_EQ(std::to_integer<int>(back.data()[0]), 10 + i);
    EXPECT_EQ(value_of(back), 10 + i);
  }
  EXPECT_EQ(file.traffic().written, 6 * kPadded);
  EXPECT_EQ(file.traffic().read, 6 * kPadded);
  EXPECT_GT(file.traffic().busy, 0);
  EXPECT_GT(file.traffic().waited, 0);
}

TEST_P(SpillFileTest, ARecordSeesWhatWasAskedForBefore) {
  SpillFile file(directory_.path(), kRecord, make);
  expect_order(file);
}

TEST_P(SpillFileTest, GoesThroughThePageCacheWhereDirectIoIsRefusedInUse) {
  // Memory at an odd address: direct I/O is allowed on opening, and then is not.
  SpillFile file(
      directory_.path(), kRecord, changed([](BlockOperation& operation) { ++operation.memory; }));
  if (!file.is_direct()) {
    GTEST_SKIP() << "no direct I/O here";
  }
  AlignedBuffer buffer(kPadded + 4096);
  std::memset(buffer.data(), 3, kPadded + 4096);
  file.wait(file.write(4, buffer));
  if (file.is_direct()) {
    GTEST_SKIP() << "direct I/O takes any address here";
  }
  file.wait(file.write(0, buffer));
  std::memset(buffer.data(), 0, kPadded + 4096);
  file.wait(file.read(4, buffer));
  EXPECT_EQ(std::to_integer<int>(buffer.data()[0]), 0);
  EXPECT_EQ(std::to_integer<int>(buffer.data()[1]), 3);
  EXPECT_EQ(std::to_integer<int>(buffer.data()[kPadded]), 3);
  EXPECT_EQ(std::to_integer<int>(buffer.data()[kPadded + 1]), 0);
  EXPECT_EQ(file.traffic().written, 2 * kPadded);
  EXPECT_EQ(file.traffic().read, kPadded);
}

TEST_P(SpillFileTest, ARecordSeesWhatWasAskedForBeforeWithoutDirectIoToo) {
  SpillFile file(
      directory_.path(), kRecord, changed([](BlockOperation& operation) { ++operation.memory; }));
  expect_order(file);
}

TEST_P(SpillFileTest, GoesOnAfterShortReadsAndWrites) {
  for (const std::int64_t most : {4096, 1000}) {  // the latter needs the page cache
    SpillFile file(directory_.path(), kRecord, changed([most](BlockOperation& operation) {
                     operation.bytes = std::min(operation.bytes, most);
                   }));
    AlignedBuffer buffer = filled(file, 7);
    std::memset(buffer.data() + 4500, 8, 100);
    file.wait(file.write(1, buffer));
    const AlignedBuffer back(kPadded);
    file.wait(file.read(1, back));
    EXPECT_EQ(std::memcmp(buffer.data(), back.data(), kPadded), 0) << most;
    EXPECT_EQ(file.traffic().read, kPadded);
  }
}

TEST_P(SpillFileTest, ReadingWhatWasNeverWrittenIsAnError) {
  SpillFile file(directory_.path(), kRecord, make);
  const AlignedBuffer back(file.buffer_bytes());
  const SpillFile::Ticket written = file.write(0, back);
  file.wait(written);
  expect_error([&] { file.wait(file.read(2, back)); }, ErrorCode::kIo, "the file ends there");
  // Nothing after it passes for done, nor what went well.
  expect_error([&] { file.wait(file.write(0, back)); }, ErrorCode::kIo, "the file ends there");
  expect_error(
      [&] { file.wait(written); }, ErrorCode::kIo, "reading 8 KiB of keys and values at 16 KiB");
}

TEST_P(SpillFileTest, AFileThatMayNotGrowIsOneClearError) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 3 * kPadded;
  setrlimit(RLIMIT_FSIZE, &small);
  {
    SpillFile file(directory_.path(), kRecord, make);
    const AlignedBuffer buffer = filled(file, 1);
    file.wait(file.write(2, buffer));
    expect_error([&] { file.wait(file.write(3, buffer)); },
                 ErrorCode::kIo,
                 "[spill] writing 8 KiB of keys and values at 24 KiB of a file in " +
                     directory_.path().string() + ": File too large");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

TEST(SpillRoom, IsWhatIsFreeAndWhatAFileMayHave) {
  const TemporaryDirectory directory;
  const auto room = spill_room(directory.path());
  ASSERT_TRUE(room.has_value());
  EXPECT_GT(*room, 0);
  EXPECT_LE(*room, static_cast<std::int64_t>(std::filesystem::space(directory.path()).capacity));
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 3;
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_EQ(spill_room(directory.path()), 3);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(spill_room(directory.path() / "nowhere"), std::nullopt);
  EXPECT_EQ(spill_room("/proc"), std::nullopt);
}

// Writes more than a file system of 64 KiB holds, in a process of its own, which alone sees it.
// What it says comes to standard error.
[[noreturn]] void fill_a_disk(const std::filesystem::path& directory, const BlockIoMaker& make) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=64k") != 0) {
    std::fprintf(stderr, "may not mount");
    std::_Exit(0);
  }
  try {
    SpillFile file(directory, kRecord, make);
    const AlignedBuffer buffer = filled(file, 1);
    SpillFile::Ticket last = 0;
    for (int i = 0; i < 100; ++i) {
      last = file.write(i, buffer);
    }
    file.wait(last);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s", error.what());
  }
  std::_Exit(0);
}

bool may_mount() {
  const pid_t child = fork();
  if (child == 0) {
    std::_Exit(unshare(CLONE_NEWNS) == 0 &&
                       mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0
                   ? 0
                   : 1);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

TEST_P(SpillFileTest, AFullDiskIsOneClearError) {
  if (!may_mount()) {
    GTEST_SKIP() << "no right to mount a small file system";
  }
  EXPECT_EXIT(fill_a_disk(directory_.path(), make),
              testing::ExitedWithCode(0),
              "writing 8 KiB of keys and values at [0-9]+ KiB of a file in .*: No "
              "space left");
}

// A process that may have no threads; it says what it met and how many descriptors it lost.
[[noreturn]] void make_without_threads(const std::filesystem::path& directory,
                                       const BlockIoMaker& make) {
  const rlimit none{};
  if ((getuid() == 0 && setuid(65534) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0) {
    std::_Exit(1);
  }
  const int before = dup(2);
  close(before);
  try {
    const SpillFile file(directory, kRecord, make);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s", error.what());
  }
  const int after = dup(2);
  std::fprintf(stderr, "; %d lost", after - before);
  std::_Exit(0);
}

TEST_P(SpillFileTest, LosesNoDescriptorWhereThereIsNoThread) {
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  EXPECT_EXIT(make_without_threads(directory_.path(), make),
              testing::ExitedWithCode(0),
              "the system refused a thread for reading and writing: .*; 0 lost");
}

INSTANTIATE_TEST_SUITE_P(Ways,
                         SpillFileTest,
                         testing::Values("io_uring", "one thread"),
                         [](const auto& way) {
                           return std::string(way.param) == "io_uring" ? "Ring" : "Thread";
                         });

TEST(SpillFile, HasNoName) {
  const TemporaryDirectory directory;
  SpillFile file(directory.path(), kRecord);
  file.wait(file.write(3, filled(file, 1)));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SpillFile, StartsARecordsRequestsOneAfterTheOther) {
  HeldFile held;
  const AlignedBuffer a = filled(held.file(), 1);
  const SpillFile::Ticket write = held.file().write(5, a);
  const SpillFile::Ticket read = held.file().read(5, a);
  const SpillFile::Ticket other = held.file().read(6, a);
  ASSERT_EQ(held.io().operations.size(), 2U);
  EXPECT_EQ(held.io().operations[0].kind, Kind::kWrite);
  EXPECT_EQ(held.io().operations[1].offset, 6 * kPadded);
  held.io().end(1, kPadded);
  EXPECT_TRUE(held.file().is_done(other));
  EXPECT_FALSE(held.file().is_done(write));
  ASSERT_EQ(held.io().operations.size(), 1U);
  held.io().end(0, 4096);  // half of it
  EXPECT_FALSE(held.file().is_done(write));
  ASSERT_EQ(held.io().operations.size(), 1U);
  EXPECT_EQ(held.io().operations[0].kind, Kind::kWrite);
  EXPECT_EQ(held.io().operations[0].offset, 5 * kPadded + 4096);
  held.io().end(0, 4096);
  EXPECT_TRUE(held.file().is_done(write));
  EXPECT_FALSE(held.file().is_done(read));
  ASSERT_EQ(held.io().operations.size(), 1U);
  EXPECT_EQ(held.io().operations[0].kind, Kind::kRead);
  held.io().end_all();
  held.file().wait(read);
}

TEST(SpillFile, KeepsTheQueueFullAndNoFuller) {
  HeldFile held;
  const AlignedBuffer buffer = filled(held.file(), 1);
  SpillFile::Ticket last = 0;
  for (int i = 0; i < BlockIo::kQueueDepth + 3; ++i) {
    last = held.file().write(i, buffer);
  }
  EXPECT_EQ(held.io().operations.size(), std::size_t{BlockIo::kQueueDepth});
  held.io().end(7, kPadded);
  EXPECT_EQ(held.io().operations.size(), std::size_t{BlockIo::kQueueDepth});
  EXPECT_FALSE(held.file().is_done(last));
  held.io().end_all();
  EXPECT_TRUE(held.file().is_done(last));
  EXPECT_EQ(held.file().traffic().written, (BlockIo::kQueueDepth + 3) * kPadded);
}

TEST(SpillFile, TheCacheForgetsWhatIsOnTheDisk) {
  HeldFile held;
  const AlignedBuffer buffer = filled(held.file(), 1);
  const SpillFile::Ticket write = held.file().write(2, buffer);
  held.io().end(0, -EINVAL);  // no direct I/O
  std::vector<Kind> kinds;
  while (!held.io().operations.empty()) {
    EXPECT_EQ(held.io().operations[0].offset, 2 * kPadded);
    EXPECT_EQ(held.io().operations[0].bytes, kPadded);
    EXPECT_FALSE(held.file().is_done(write));
    kinds.push_back(held.io().operations[0].kind);
    held.io().end(0, kinds.size() == 1 ? kPadded : 0);
  }
  EXPECT_EQ(kinds, (std::vector{Kind::kWrite, Kind::kSync, Kind::kDrop}));
  EXPECT_FALSE(held.file().is_direct());
  held.file().wait(write);
  const SpillFile::Ticket read = held.file().read(2, buffer);
  held.io().end(0, kPadded);
  ASSERT_EQ(held.io().operations.size(), 1U);
  EXPECT_EQ(held.io().operations[0].kind, Kind::kDrop);
  held.io().end(0, -EBADF);  // a hint: it does not matter
  held.file().wait(read);
}

TEST(SpillFile, AnErrorOfWritingBackIsAnErrorOfWriting) {
  for (const int error : {EIO, EINVAL, ENOSYS}) {
    HeldFile held;
    const AlignedBuffer buffer = filled(held.file(), 1);
    const SpillFile::Ticket write = held.file().write(2, buffer);
    held.io().end(0, -EINVAL);
    held.io().end(0, kPadded);
    ASSERT_EQ(held.io().operations.at(0).kind, Kind::kSync);
    held.io().end(0, -error);
    if (error == EIO) {
      expect_error([&] { held.file().wait(write); }, ErrorCode::kIo, "Input/output error");
    } else {  // the file system does not know it
      held.io().end(0, 0);
      held.file().wait(write);
    }
  }
}

TEST(SpillFile, AFailureDropsWhatHasNotBegunAndWaitsForWhatHas) {
  HeldFile held;
  const AlignedBuffer buffer = filled(held.file(), 1);
  (void)held.file().write(0, buffer);
  const SpillFile::Ticket running = held.file().write(1, buffer);
  const SpillFile::Ticket blocked = held.file().read(1, buffer);
  held.io().end(0, -ENOSPC);
  EXPECT_FALSE(held.file().is_done(running));
  EXPECT_TRUE(held.file().is_done(blocked));
  expect_error([&] { held.file().wait(blocked); }, ErrorCode::kIo, "at 0 B of a file");
  held.io().end(0, -EIO);  // the first failure is the one that counts
  expect_error([&] { held.file().wait(running); }, ErrorCode::kIo, "No space left on device");
  (void)held.file().write(2, buffer);
  EXPECT_TRUE(held.io().operations.empty());
}

TEST(SpillFile, AsksAgainForWhatWasInterrupted) {
  HeldFile held;
  const AlignedBuffer buffer = filled(held.file(), 1);
  const SpillFile::Ticket write = held.file().write(0, buffer);
  held.io().end(0, -EINTR);
  held.io().end(0, -ECANCELED);
  held.io().end_all();
  held.file().wait(write);
}

TEST(SpillFile, ARefusalToStartIsAFailure) {
  HeldFile held;
  const AlignedBuffer buffer = filled(held.file(), 1);
  held.io().refusal = EAGAIN;
  const SpillFile::Ticket write = held.file().write(3, buffer);
  EXPECT_TRUE(held.file().is_done(write));
  expect_error([&] { held.file().wait(write); }, ErrorCode::kIo, "at 24 KiB of a file in ");
  expect_error([&] { held.file().wait(0); }, ErrorCode::kIo, "Resource temporarily unavailable");
}

TEST(SpillFile, NamesTheDirectoryThatCannotHoldIt) {
  expect_error([] { SpillFile file("/nowhere/at/all", kRecord); },
               ErrorCode::kIo,
               "[spill] no file can be made in /nowhere/at/all: No such file or directory");
}

TEST(SpillFile, RefusesRecordsThatNoFileHas) {
  const TemporaryDirectory directory;
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 30) + 1}) {
    expect_error([&] { SpillFile file(directory.path(), bytes); },
                 ErrorCode::kInvalidArgument,
                 "[spill] records of " + std::to_string(bytes) + " bytes: from 1 to 1073741824");
  }
  SpillFile file(directory.path(), kRecord);
  const AlignedBuffer buffer = filled(file, 1);
  for (const std::int64_t record : {std::int64_t{-1}, INT64_MAX / kPadded, INT64_MAX}) {
    expect_error([&] { (void)file.write(record, buffer); },
                 ErrorCode::kInvalidArgument,
                 "[spill] no file has a record " + std::to_string(record));
  }
  expect_error(
      [&] {
        SpillFile none(directory.path(), kRecord, [](int, const BlockIo::Done&) {
          return std::unique_ptr<BlockIo>();
        });
      },
      ErrorCode::kUnsupported,
      "the system does not allow this way of doing I/O");
}

}  // namespace
}  // namespace longtune
