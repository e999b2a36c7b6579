#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "device/plan.h"
#include "train/trainer.h"

namespace longtune::cli {

enum class ProgressMode : std::uint8_t {
  kQuiet,     ///< nothing
  kTerminal,  ///< one line, rewritten in place
  kPlain,     ///< a line now and then
  kVerbose,   ///< a line at every update
};

/// kQuiet where asked for; else by what standard error is.
[[nodiscard]] ProgressMode progress_mode(bool is_quiet, bool is_verbose);

/// Shows how far a long operation is. What is printed is for people; results go elsewhere.
class Progress {
 public:
  Progress(std::FILE* stream,
           ProgressMode mode,
           std::chrono::milliseconds interval = std::chrono::seconds(10));

  /// Ends a line that is being rewritten.
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The present state: replaces the line on a terminal; else a line of its own, unless one was
  /// printed less than `interval` ago.
  void update(const std::string& line);

  /// The present state as the share of `what` that is done, 0 to 1, up to its end; as lines of
  /// their own at most one a tenth.
  void share(std::string_view what, double share);

  /// The state at the end, which is always printed.
  void last(const std::string& line);

  /// A line that stays, whatever is updated.
  void note(const std::string& line);

 private:
  void print_in_place(const std::string& line);
  void end_line();

  std::FILE* stream_;
  ProgressMode mode_;
  std::chrono::milliseconds interval_;
  std::optional<std::chrono::steady_clock::time_point> printed_;
  std::string shown_;  ///< in the open line
  bool is_line_open_ = false;
  int tenth_ = -1;  ///< of a share, as shown last
};

/// What a training run's line shows beside the report of its last step.
struct StepContext {
  std::int64_t steps = 0;  ///< of the whole run
  double peak_flops = 0;   ///< 0: the share of the limit is not shown
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = 0;
  Budgets budgets;
  double seconds_left = 0;
};

/// "step 12/100  3:12 left  loss 2.3451  lr 0.00019  412 tokens/s  38 % of limit  device 900.0 MiB
/// of 1.00 GiB  host 200.0 MiB": what is wanted most stands first, as a terminal cuts the end.
[[nodiscard]] std::string step_line(const StepReport& report, const StepContext& context);

/// "7 s", "3:12", "1:02:03".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace longtune::cli
