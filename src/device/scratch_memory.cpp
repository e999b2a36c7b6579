#include "device/scratch_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"

namespace longtune {

ScratchMemory::~ScratchMemory() {
  release();
}

void ScratchMemory::release() {
  std::free(std::exchange(memory_, nullptr));
  bytes_ = 0;
}

std::byte* ScratchMemory::at_least(std::int64_t bytes) {
  if (bytes <= bytes_) {
    return memory_;
  }
  release();  // before more is taken
  const std::int64_t rounded = round_up(bytes, kAlignment);
  const auto size = static_cast<std::size_t>(rounded);
  memory_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  if (memory_ == nullptr) {
    fail(ErrorCode::kIo, "scratch", "the system refused {} of memory", format_bytes(rounded));
  }
  bytes_ = rounded;
  madvise(memory_, size, MADV_HUGEPAGE);  // a hint: may be refused
  return memory_;
}

}  // namespace longtune
