#include "io/aligned_buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {

AlignedBuffer::AlignedBuffer(std::int64_t bytes)
    : memory_(static_cast<std::byte*>(
          std::aligned_alloc(kAlignment, static_cast<std::size_t>(round_up(bytes, kAlignment))))) {
  if (memory_ == nullptr) {
    fail(ErrorCode::kIo, "spill", "the system refused {} of memory", format_bytes(bytes));
  }
  std::memset(memory_.get(), 0, static_cast<std::size_t>(round_up(bytes, kAlignment)));
}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

}  // namespace longtune
