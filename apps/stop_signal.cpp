#include "apps/stop_signal.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace longtune::cli {
namespace {

std::atomic<bool> stop_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void note_stop(int signal) {
  constexpr std::string_view kMessage =
      "\nlongtune: stopping after this step; once more to stop at once\n";
  if (stop_flag.exchange(true)) {
    if (signal == SIGHUP) {
      return;  // a closing terminal sends several
    }
    _exit(130);
  }
  const int interrupted = errno;
  // What may fail here is a message, and there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  errno = interrupted;
}

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
std::array<struct sigaction, kSignals.size()> actions_before;

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_flag = false;

  struct sigaction action {};

  action.sa_handler = note_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &actions_before[i]);
    if (kSignals[i] != SIGHUP || actions_before[i].sa_handler != SIG_IGN) {
      sigaction(kSignals[i], &action, nullptr);
    }
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &actions_before[i], nullptr);
  }
}

const std::atomic<bool>& StopOnSignal::stop_requested() const {
  return stop_flag;
}

}  // namespace longtune::cli
