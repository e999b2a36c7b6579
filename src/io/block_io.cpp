#include "io/block_io.h"

#include <system_error>
#include <utility>

#include "base/error.h"

namespace longtune {

std::unique_ptr<BlockIo> make_block_io(int descriptor, BlockIo::Done done) {
  std::unique_ptr<BlockIo> ring = make_ring_io(descriptor, done);
  return ring ? std::move(ring) : make_thread_io(descriptor, std::move(done));
}

std::thread start_io_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(ErrorCode::kIo,
         "spill",
         "the system refused a thread for reading and writing: {}; a limit on processes may be in "
         "the way (ulimit -u)",
         error.code().message());
  }
}

}  // namespace longtune
