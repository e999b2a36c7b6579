#include "device/system_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace longtune {
namespace {

// The number in a file that holds nothing else; nothing for "max" and for files that are not there.
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> available_to_system() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  for (std::string rest; file >> name >> kibibytes && std::getline(file, rest);) {
    if (name == "MemAvailable:") {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> available_to_cgroup() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  return limit && used ? std::optional(std::max<std::int64_t>(0, *limit - *used)) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> available_memory() {
  const auto system = available_to_system();
  const auto cgroup = available_to_cgroup();
  return system && cgroup ? std::min(system, cgroup) : system ? system : cgroup;
}

}  // namespace longtune
