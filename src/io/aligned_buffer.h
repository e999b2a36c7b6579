#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace longtune {

/// Memory aligned as direct I/O wants it, cleared: what pads a record must not carry other memory
/// to the disk.
class AlignedBuffer {
 public:
  /// Throws Error kIo where the system refuses the memory.
  explicit AlignedBuffer(std::int64_t bytes);

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

  static constexpr std::int64_t kAlignment = 4096;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::unique_ptr<std::byte[], Free> memory_;
};

}  // namespace longtune
