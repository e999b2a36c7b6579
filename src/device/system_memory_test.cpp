#include "device/system_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace longtune {
namespace {

TEST(SystemMemory, IsSomethingBelowWhatTheMachineHas) {
  const auto available = available_memory();
  ASSERT_TRUE(available.has_value());
  EXPECT_GT(*available, 0);
  EXPECT_LT(*available, std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace longtune
