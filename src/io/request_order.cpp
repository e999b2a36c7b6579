#include "io/request_order.h"

namespace longtune {

RequestOrder::Ticket RequestOrder::add(std::int64_t record, bool is_write, std::byte* buffer) {
  Request request;
  request.ticket = last_ + 1;
  request.record = record;
  request.is_write = is_write;
  request.buffer = buffer;
  for (const auto& [ticket, earlier] : requests_) {
    if (earlier.record == record) {
      request.state = Request::State::kBlocked;
    }
  }
  requests_.emplace(request.ticket, request);
  return ++last_;
}

RequestOrder::Request* RequestOrder::take() {
  for (auto& [ticket, request] : requests_) {
    if (request.state == Request::State::kReady) {
      request.state = Request::State::kRunning;
      return &request;
    }
  }
  return nullptr;
}

void RequestOrder::finish(const Request& request) {
  const std::int64_t record = request.record;
  requests_.erase(request.ticket);
  for (auto& [ticket, later] : requests_) {
    if (later.record == record) {
      later.state = Request::State::kReady;
      return;
    }
  }
}

void RequestOrder::drop_waiting() {
  std::erase_if(requests_,
                [](const auto& entry) { return entry.second.state != Request::State::kRunning; });
}

}  // namespace longtune
