#include "device/system_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/bytes.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

class SystemMemory : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view text) { root_.write(name, text); }

  // A system with 16 GiB available and the process in `groups`, as proc/self/cgroup has them.
  void write_system(std::string_view groups) {
    write(
        "proc/meminfo",
        "MemTotal:       33554432 kB\nMemFree:         1048576 kB\nMemAvailable:   16777216 kB\n");
    write("proc/self/cgroup", groups);
  }

  [[nodiscard]] std::optional<std::int64_t> available() const {
    return available_memory(root_.path());
  }

  TemporaryDirectory root_;
};

TEST_F(SystemMemory, IsSomethingBelowWhatTheMachineHas) {
  const auto available = available_memory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(*available, 0);
  EXPECT_LT(*available, std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

TEST_F(SystemMemory, IsNotKnownWhereTheSystemSaysNothing) {
  EXPECT_EQ(available(), std::nullopt);
}

TEST_F(SystemMemory, IsWhatTheKernelSaysWhereNoGroupIsLimited) {
  write_system("0::/\n");
  EXPECT_EQ(available(), 16 * kGiB);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "1000\n");
  EXPECT_EQ(available(), 16 * kGiB);
}

TEST_F(SystemMemory, CountsThePageCacheOfAGroupAsAvailable) {
  write_system("0::/\n");
  write("sys/fs/cgroup/memory.max", "1000000\n");
  write("sys/fs/cgroup/memory.current", "900000\n");
  EXPECT_EQ(available(), 100000);
  // Shared memory is counted in "file", but only swapping takes it back.
  write("sys/fs/cgroup/memory.stat",
        "anon 200000\nfile 600000\nshmem 50000\nfile_mapped 7000\nslab 100000\n"
        "inactive_anon 250000\nactive_anon 0\ninactive_file 400000\nactive_file 150000\n"
        "slab_reclaimable 30000\nslab_unreclaimable 70000\n");
  EXPECT_EQ(available(), 100000 + 400000 + 150000 + 30000);
}

TEST_F(SystemMemory, IsNeitherNegativeNorMoreThanALimit) {
  write_system("0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "3000\n");
  EXPECT_EQ(available(), 0);
  write("sys/fs/cgroup/memory.stat", "inactive_file 9000\n");
  EXPECT_EQ(available(), 1000);
}

TEST_F(SystemMemory, HeedsTheGroupsAboveAndWhereTheyAreSlowedDown) {
  write_system("0::/user/me\n");
  write("sys/fs/cgroup/user/memory.max", "5000\n");
  write("sys/fs/cgroup/user/memory.current", "4000\n");
  write("sys/fs/cgroup/user/memory.stat", "inactive_file 700\n");
  write("sys/fs/cgroup/user/me/memory.max", "max\n");
  write("sys/fs/cgroup/user/me/memory.current", "300\n");
  EXPECT_EQ(available(), 1700);
  write("sys/fs/cgroup/user/me/memory.max", "1000\n");
  EXPECT_EQ(available(), 700);
  write("sys/fs/cgroup/user/me/memory.high", "800\n");
  EXPECT_EQ(available(), 500);
  write("sys/fs/cgroup/user/other/memory.max", "1\n");
  write("sys/fs/cgroup/user/other/memory.current", "1\n");
  EXPECT_EQ(available(), 500);
}

TEST_F(SystemMemory, ReadsVersion1WithTheGroupsBelow) {
  write_system("9:name=systemd:/\n4:cpu,memory:/job\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "900000\n");
  EXPECT_EQ(available(), 16 * kGiB);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900000\n");
  write("sys/fs/cgroup/memory/job/memory.stat",
        "cache 90\ninactive_file 10\nactive_file 20\ntotal_cache 700000\ntotal_shmem 20000\n"
        "total_inactive_file 500000\ntotal_active_file 60000\n");
  EXPECT_EQ(available(), 100000 + 500000 + 60000);
}

TEST_F(SystemMemory, FindsAGroupThatIsMountedAlone) {
  for (const char* groups : {"4:memory:/docker/0123\n", "4:memory:/../other\n", "no line\n"}) {
    write_system(groups);
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400\n");
    EXPECT_EQ(available(), 600) << groups;
  }
}

}  // namespace
}  // namespace longtune
