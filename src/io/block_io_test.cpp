#include "io/block_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

#include "io/aligned_buffer.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

using Kind = BlockOperation::Kind;

constexpr std::int64_t kBlock = AlignedBuffer::kAlignment;

// What operations came to, by their owner.
class Results {
 public:
  [[nodiscard]] BlockIo::Done done() {
    return [this](void* owner, std::int64_t result) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(results_.emplace(owner, result).second) << "done twice";
      arrived_.notify_all();
    };
  }

  std::int64_t wait_for(void* owner) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return results_.contains(owner); });
    const std::int64_t result = results_.at(owner);
    results_.erase(owner);
    return result;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<void*, std::int64_t> results_;
};

class BlockIoTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = directory_.write("file", "");
    open_file(O_RDWR);
  }

  void TearDown() override { close_file(); }

  void open_file(int flags) {
    close_file();
    descriptor_ = open(path_.c_str(), flags | O_CLOEXEC);
    ASSERT_GE(descriptor_, 0) << std::strerror(errno);
    const bool ring = std::string(GetParam()) == "io_uring";
    io_ = ring ? make_ring_io(descriptor_, results_.done())
               : make_thread_io(descriptor_, results_.done());
    if (!io_) {
      GTEST_SKIP() << "no io_uring here";
    }
    ASSERT_EQ(io_->name(), ring ? "io_uring" : "one thread");
  }

  // The result of one operation alone.
  std::int64_t run(BlockOperation operation) {
    operation.owner = this;
    EXPECT_EQ(io_->start(operation), 0);
    return results_.wait_for(this);
  }

  TemporaryDirectory directory_;
  std::filesystem::path path_;
  Results results_;
  int descriptor_ = -1;
  std::unique_ptr<BlockIo> io_;

 private:
  void close_file() {
    io_.reset();
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
};

TEST_P(BlockIoTest, MovesBytesAndSaysHowMany) {
  std::string text = "keys and values";
  auto* bytes = reinterpret_cast<std::byte*>(text.data());
  EXPECT_EQ(run({.kind = Kind::kWrite, .offset = 7, .bytes = 15, .memory = bytes}), 15);
  EXPECT_EQ(run({.kind = Kind::kSync, .offset = 0, .bytes = 22}), 0);
  EXPECT_EQ(run({.kind = Kind::kDrop, .offset = 0, .bytes = 22}), 0);
  text.assign(15, '-');
  EXPECT_EQ(run({.kind = Kind::kRead, .offset = 12, .bytes = 15, .memory = bytes}), 10);
  EXPECT_EQ(text, "and values-----");
  EXPECT_EQ(run({.kind = Kind::kRead, .offset = 22, .bytes = 15, .memory = bytes}), 0);
}

TEST_P(BlockIoTest, HandsErrorsBack) {
  open_file(O_RDONLY);
  std::byte byte{};
  EXPECT_EQ(run({.kind = Kind::kWrite, .offset = 0, .bytes = 1, .memory = &byte}), -EBADF);
  EXPECT_EQ(run({.kind = Kind::kRead, .offset = 0, .bytes = 1, .memory = &byte}), 0);
}

TEST_P(BlockIoTest, HasAQueueFullInFlight) {
  std::array<std::int64_t, BlockIo::kQueueDepth> numbers{};
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const bool writes = round % 2 == 0;
      if (writes) {
        numbers[i] = static_cast<std::int64_t>(i) + 100 * round;
      }
      ASSERT_EQ(io_->start({.kind = writes ? Kind::kWrite : Kind::kRead,
                            .offset = static_cast<std::int64_t>(i) * 8,
                            .bytes = 8,
                            .memory = reinterpret_cast<std::byte*>(&numbers[i]),
                            .owner = &numbers[i]}),
                0);
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(results_.wait_for(&numbers[i]), 8);
      ASSERT_EQ(numbers[i], static_cast<std::int64_t>(i) + 100 * (round / 2 * 2));
      numbers[i] = round % 2 == 0 ? -1 : numbers[i];
    }
  }
}

TEST_P(BlockIoTest, EndsAfterWhatIsInFlight) {
  AlignedBuffer buffer(1 << 20);
  std::memset(buffer.data(), 5, 1 << 20);
  ASSERT_EQ(io_->start({.kind = Kind::kWrite,
                        .offset = 0,
                        .bytes = 1 << 20,
                        .memory = buffer.data(),
                        .owner = this}),
            0);
  io_.reset();
  EXPECT_EQ(results_.wait_for(this), 1 << 20);
  EXPECT_EQ(std::filesystem::file_size(path_), 1U << 20);
}

INSTANTIATE_TEST_SUITE_P(Ways,
                         BlockIoTest,
                         testing::Values("io_uring", "one thread"),
                         [](const auto& way) {
                           return std::string(way.param) == "io_uring" ? "Ring" : "Thread";
                         });

// From here on io_uring_setup fails in this process, as containers have it. Returns whether that
// can be had.
bool forbid_io_uring(int error) {
  const auto answer = SECCOMP_RET_ERRNO | static_cast<unsigned>(error);
  std::array<sock_filter, 4> program = {
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_io_uring_setup},
      sock_filter{BPF_RET | BPF_K, 0, 0, answer},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(MakeBlockIo, FallsBackToTheThread) {
  for (const int error : {ENOSYS, EPERM, ENOMEM}) {
    EXPECT_EXIT(
        {
          const bool ring_is_made = make_ring_io(0, [](void*, std::int64_t) {}) != nullptr;
          const bool forbidden = forbid_io_uring(error);
          const bool ring_is_made_now = make_ring_io(0, [](void*, std::int64_t) {}) != nullptr;
          const std::string name(make_block_io(0, [](void*, std::int64_t) {})->name());
          std::fprintf(
              stderr, "%d %d %d %s", ring_is_made, forbidden, ring_is_made_now, name.c_str());
          std::_Exit(forbidden ? 0 : 1);
        },
        testing::ExitedWithCode(0),
        "[01] 1 0 one thread");
  }
}

// The descriptor of the one io_uring that this process has open; -1 where there is none.
int ring_descriptor() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) == "anon_inode:[io_uring]") {
      return std::stoi(entry.path().filename());
    }
  }
  return -1;
}

TEST(RingIo, GivesUpWhereTheSystemNoLongerSaysWhatIsDone) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  Results results;
  std::unique_ptr<BlockIo> io = make_ring_io(pipe_ends[0], results.done());
  const int ring = io ? ring_descriptor() : -1;
  if (ring < 0) {
    GTEST_SKIP() << "no io_uring here";
  }
  // Two reads wait for a byte each; the ring's descriptor then stands for something else.
  std::array<std::byte, 2> bytes{};
  for (std::byte& byte : bytes) {
    ASSERT_EQ(io->start({.kind = Kind::kRead, .bytes = 1, .memory = &byte, .owner = &byte}), 0);
  }
  const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_EQ(dup2(other, ring), ring);
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  // Either read may get the byte.
  const std::int64_t first = results.wait_for(&bytes[0]);
  const std::int64_t second = results.wait_for(&bytes[1]);
  EXPECT_EQ(std::max(first, second), 1);
  EXPECT_EQ(std::min(first, second), -EOPNOTSUPP);
  EXPECT_EQ(io->start({.kind = Kind::kRead, .bytes = 1, .memory = &bytes[1], .owner = &io}),
            EOPNOTSUPP);
  io.reset();
  for (const int descriptor : {other, pipe_ends[0], pipe_ends[1]}) {
    close(descriptor);
  }
}

TEST(MakeBlockIo, TakesTheRingWhereItIsToBeHad) {
  const auto ignore = [](void*, std::int64_t) {};
  EXPECT_EQ(make_block_io(0, ignore)->name(), make_ring_io(0, ignore) ? "io_uring" : "one thread");
}

}  // namespace
}  // namespace longtune
