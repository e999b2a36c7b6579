#pragma once

#include <atomic>

namespace longtune::cli {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP (where that is not ignored, as under nohup)
/// sets stop_requested() instead of ending the process, so that a run can finish its step and save;
/// the second ends it at once, exit status 130. At most one at a time.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  [[nodiscard]] const std::atomic<bool>& stop_requested() const;
};

}  // namespace longtune::cli
