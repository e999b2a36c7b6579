#include "apps/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace longtune::cli {
namespace {

std::atomic<bool> stop_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void note_stop(int /*signal*/) {
  constexpr std::string_view kMessage =
      "\nlongtune: stopping after this step; once more to stop at once\n";
  if (stop_flag.exchange(true)) {
    _exit(130);
  }
  // What may fail here is a message, and there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
}

void handle(void (*handler)(int)) {
  struct sigaction action {};

  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_flag = false;
  handle(note_stop);
}

StopOnSignal::~StopOnSignal() {
  handle(SIG_DFL);
}

const std::atomic<bool>& StopOnSignal::stop_requested() const {
  return stop_flag;
}

}  // namespace longtune::cli
