#include "device/host_memory.h"

namespace longtune {

HostMemory::HostMemory(std::string_view purpose,
                       std::int64_t bytes,
                       const Arena& arena,
                       Plan& plan) {
  plan.add(purpose, Tier::kHost, bytes);
  if (!arena.is_planning()) {
    memory_.reset(new std::byte[static_cast<std::size_t>(bytes)]);
  }
}

}  // namespace longtune
