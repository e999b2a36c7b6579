#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "device/arena.h"
#include "device/plan.h"

namespace longtune {

/// Host memory that a plan counts. Beside a planning arena it is counted and not taken.
class HostMemory {
 public:
  /// None.
  HostMemory() = default;

  /// Charges `bytes` to the row `purpose` of the host's tier. They are not cleared: the system
  /// gives them once they are written to.
  HostMemory(std::string_view purpose, std::int64_t bytes, const Arena& arena, Plan& plan);

  /// Null where there is none, and where planning.
  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace longtune
