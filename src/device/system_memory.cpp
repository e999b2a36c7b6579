#include "device/system_memory.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace longtune {
namespace {

namespace fs = std::filesystem;

using Bytes = std::optional<std::int64_t>;

Bytes smaller(Bytes a, Bytes b) {
  return a && b ? std::min(a, b) : a ? a : b;
}

// The number in a file that holds nothing else; nothing for "max" and for files that are not there.
Bytes number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? Bytes(value) : std::nullopt;
}

Bytes available_to_system(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  for (std::string rest; file >> name >> kibibytes && std::getline(file, rest);) {
    if (name == "MemAvailable:") {
      return kibibytes * 1024;
    }
  }
  return std::nullopt;
}

// How a version of cgroups tells what a group has. A group's numbers hold those of the groups
// below it.
struct Version {
  const char* controller;  // as proc/self/cgroup names it
  const char* mount;
  std::array<const char*, 2> limits;
  const char* used;
  std::array<std::string_view, 3> reclaimable;  // of memory.stat
};

constexpr std::array kVersions = {
    Version{.controller = "",
            .mount = "sys/fs/cgroup",
            .limits = {"memory.max", "memory.high"},
            .used = "memory.current",
            .reclaimable = {"inactive_file", "active_file", "slab_reclaimable"}},
    Version{.controller = "memory",
            .mount = "sys/fs/cgroup/memory",
            .limits = {"memory.limit_in_bytes"},
            .used = "memory.usage_in_bytes",
            .reclaimable = {"total_inactive_file", "total_active_file"}},
};

std::int64_t sum_of(std::span<const std::string_view> names, const fs::path& statistics) {
  std::ifstream file(statistics);
  std::int64_t sum = 0;
  std::string name;
  for (std::int64_t value = 0; file >> name >> value;) {
    sum += std::ranges::find(names, name) != names.end() ? value : 0;
  }
  return sum;
}

Bytes left_in(const fs::path& group, const Version& version) {
  Bytes limit;
  for (const char* name : version.limits) {
    limit = name == nullptr ? limit : smaller(limit, number_in(group / name));
  }
  const Bytes used = number_in(group / version.used);
  if (!limit || !used) {
    return std::nullopt;
  }
  const std::int64_t reclaimable = sum_of(version.reclaimable, group / "memory.stat");
  return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, *used - reclaimable));
}

// The process' group, relative to the mount; lines are "4:cpu,memory:/path" and, of version 2,
// "0::/path". Empty where that is not known, or lies outside of what is mounted here.
fs::path group_of(const Version& version, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find(std::string(",") + version.controller + ",") == std::string::npos) {
      continue;
    }
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    return std::ranges::find(path, "..") == path.end() ? path : fs::path();
  }
  return {};
}

// What the tightest of the process' groups leaves. Where a container has only its own group
// mounted, those below the mount do not exist, and the mount itself is the group.
Bytes available_to_cgroup(const Version& version, const fs::path& root) {
  const fs::path mount = root / version.mount;
  Bytes least = left_in(mount, version);
  fs::path group = mount;
  for (const fs::path& part : group_of(version, root)) {
    group /= part;
    least = smaller(least, left_in(group, version));
  }
  return least;
}

}  // namespace

std::optional<std::int64_t> available_memory(const fs::path& root) {
  Bytes least = available_to_system(root);
  for (const Version& version : kVersions) {
    least = smaller(least, available_to_cgroup(version, root));
  }
  return least;
}

}  // namespace longtune
