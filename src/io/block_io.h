#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

namespace longtune {

/// One thing to do with the bytes [offset, offset + bytes) of a file.
struct BlockOperation {
  enum class Kind : std::uint8_t {
    kRead,
    kWrite,
    kSync,  ///< have what was written reach the disk
    kDrop,  ///< let the page cache forget what is on the disk
  };

  Kind kind = Kind::kRead;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;       ///< at most 1 GiB
  std::byte* memory = nullptr;  ///< of kRead and kWrite; stays as it is until the operation is done
  void* owner = nullptr;        ///< handed back when it is done
};

/// Does operations on one file behind the caller. Several are in flight at a time and may be done
/// in any order: who needs an order starts one after the other is done.
class BlockIo {
 public:
  /// The most operations in flight: deep enough that a disk always has work while the caller is
  /// busy with one record, and few enough that buffers for all of them cost little.
  static constexpr int kQueueDepth = 32;

  /// Called once for each operation that start() took: with its owner and with the bytes moved (0
  /// for kSync and kDrop) or minus the errno of its failure. Never from two threads at a time; must
  /// not throw; may call start(). Where the system refuses for good to say what is done, all that
  /// is in flight ends with that refusal, and start() refuses from then on; the system may then
  /// still work on the memory.
  using Done = std::function<void(void* owner, std::int64_t result)>;

  BlockIo() = default;
  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;

  /// Waits for what is in flight.
  virtual ~BlockIo() = default;

  /// How it does them, for people.
  [[nodiscard]] virtual std::string_view name() const = 0;

  /// Takes an operation; fewer than kQueueDepth may be in flight, and callers take turns. Returns
  /// 0, or the errno with which the system refused; then `done` is not called for it, and nothing
  /// may be started any more.
  [[nodiscard]] virtual int start(const BlockOperation& operation) = 0;
};

/// Makes a BlockIo on an open file, which outlives it.
using BlockIoMaker = std::function<std::unique_ptr<BlockIo>(int descriptor, BlockIo::Done done)>;

/// Linux's io_uring. Nothing where the kernel is too old for it (before 5.6), forbids it (as
/// containers do) or has no memory left for it. Throws Error kIo where the system refuses a thread.
[[nodiscard]] std::unique_ptr<BlockIo> make_ring_io(int descriptor, BlockIo::Done done);

/// One thread, one operation after the other. Throws Error kIo where the system refuses a thread.
[[nodiscard]] std::unique_ptr<BlockIo> make_thread_io(int descriptor, BlockIo::Done done);

/// io_uring where it is to be had, else the thread.
[[nodiscard]] std::unique_ptr<BlockIo> make_block_io(int descriptor, BlockIo::Done done);

/// A thread that runs `work`. Throws Error kIo where the system refuses one.
[[nodiscard]] std::thread start_io_thread(std::function<void()> work);

}  // namespace longtune
