#pragma once

#include <cstddef>
#include <cstdint>

namespace longtune {

/// Working memory outside of the arena that its owner keeps from one use to the next, in large
/// pages where the system has them: what is packed to stay in a cache then does not depend on where
/// the system happens to put small pages.
class ScratchMemory {
 public:
  ScratchMemory() = default;
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  /// At least `bytes`, aligned to kAlignment, whose contents are whatever was left there. Memory
  /// given out before is gone where more is needed. Throws Error kIo where the system has no more.
  [[nodiscard]] std::byte* at_least(std::int64_t bytes);

  static constexpr std::int64_t kAlignment = 2 * 1024 * 1024;

 private:
  void release();

  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace longtune
