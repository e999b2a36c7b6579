#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "io/block_io.h"

namespace longtune {

/// Which of the requests on a file's records may run: those on one record in the order in which
/// they were asked for, so that a read sees the write before it; all others freely. Not
/// synchronised. Only add() takes memory. Looks at all requests that are not done: there are no
/// more of them than buffers.
class RequestOrder {
 public:
  using Ticket = std::int64_t;

  struct Request {
    Ticket ticket = 0;
    std::int64_t record = 0;
    bool is_write = false;
    std::byte* buffer = nullptr;
    BlockOperation::Kind step = BlockOperation::Kind::kRead;  ///< what is in flight for it
    std::int64_t moved = 0;                                   ///< bytes
    bool was_direct = false;                                  ///< when the step was started

   private:
    friend class RequestOrder;
    enum class State : std::uint8_t { kBlocked, kReady, kRunning };

    State state = State::kReady;
  };

  /// Tickets are 1, 2, ...
  Ticket add(std::int64_t record, bool is_write, std::byte* buffer);

  /// The oldest request that may run and does not yet; null where there is none. It stays where it
  /// is until it is finished.
  [[nodiscard]] Request* take();

  /// Ends a request that was taken.
  void finish(const Request& request);

  /// Ends all requests that were not taken.
  void drop_waiting();

  /// Whether a request has yet to be ended.
  [[nodiscard]] bool has(Ticket ticket) const { return requests_.contains(ticket); }

  [[nodiscard]] bool is_empty() const { return requests_.empty(); }

 private:
  Ticket last_ = 0;
  std::map<Ticket, Request> requests_;
};

}  // namespace longtune
