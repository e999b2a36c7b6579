#include "apps/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"

namespace longtune::cli {
namespace {

/// Columns of the terminal behind `stream`; 80 where that is not known.
[[nodiscard]] std::size_t columns_of(std::FILE* stream) {
  winsize size{};
  const bool known = ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

[[nodiscard]] std::string tier_text(Tier tier, std::int64_t bytes, const Budgets& budgets) {
  const std::optional<std::int64_t> budget = budgets.of(tier);
  return fmt::format(
      "{} {}{}", name_of(tier), format_bytes(bytes), budget ? " of " + format_bytes(*budget) : "");
}

}  // namespace

ProgressMode progress_mode(bool is_quiet, bool is_verbose) {
  if (is_quiet) {
    return ProgressMode::kQuiet;
  }
  if (is_verbose) {
    return ProgressMode::kVerbose;
  }
  return isatty(STDERR_FILENO) == 1 ? ProgressMode::kTerminal : ProgressMode::kPlain;
}

Progress::Progress(std::FILE* stream, ProgressMode mode, std::chrono::milliseconds interval)
    : stream_(stream), mode_(mode), interval_(interval) {}

Progress::~Progress() {
  end_line();
}

void Progress::update(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (mode_ == ProgressMode::kTerminal) {
    print_in_place(line);
  } else if (mode_ == ProgressMode::kVerbose ||
             (mode_ == ProgressMode::kPlain && (!printed_ || now - *printed_ >= interval_))) {
    printed_ = now;
    note(line);
  }
}

void Progress::last(const std::string& line) {
  if (mode_ == ProgressMode::kTerminal) {
    print_in_place(line);
    end_line();
  } else if (mode_ != ProgressMode::kQuiet) {
    note(line);
  }
  printed_.reset();
}

void Progress::note(const std::string& line) {
  if (mode_ == ProgressMode::kQuiet) {
    return;
  }
  end_line();
  std::fprintf(stream_, "%s\n", line.c_str());
  std::fflush(stream_);
}

void Progress::print_in_place(const std::string& line) {
  // A line that wraps could not be rewritten.
  const std::string shown = line.substr(0, columns_of(stream_) - 1);
  if (is_line_open_ && shown == shown_) {
    return;
  }
  shown_ = shown;
  std::fprintf(stream_, "\r%s\x1b[K", shown.c_str());
  std::fflush(stream_);
  is_line_open_ = true;
}

void Progress::end_line() {
  if (is_line_open_) {
    std::fputc('\n', stream_);
    std::fflush(stream_);
    is_line_open_ = false;
  }
}

std::string step_line(const StepReport& report, const StepContext& context) {
  std::string line = fmt::format("step {}/{}  ", report.step, context.steps);
  if (report.step < context.steps) {
    line += fmt::format("{} left  ", duration_text(context.seconds_left));
  }
  line += fmt::format("loss {:.4f}  lr {:.2g}  {:.0f} tokens/s",
                      report.loss,
                      report.lr,
                      static_cast<double>(report.tokens) / report.seconds);
  if (context.peak_flops > 0) {
    line += fmt::format("  {:.0f} % of limit",
                        100 * report.flops / report.seconds / context.peak_flops);
  }
  line += "  " + tier_text(Tier::kDevice, context.device_bytes, context.budgets);
  line += "  " + tier_text(Tier::kHost, context.host_bytes, context.budgets);
  return line;
}

void Progress::share(std::string_view what, double share) {
  const std::string line = fmt::format("{}: {:.0f} %", what, 100 * share);
  const int tenth = static_cast<int>(10 * share);
  if (share >= 1) {
    tenth_ = -1;
    last(line);
  } else if (mode_ != ProgressMode::kVerbose || tenth != tenth_) {
    tenth_ = tenth;
    update(line);
  }
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(0.0, seconds)));
  if (whole < 60) {
    return fmt::format("{} s", whole);
  }
  if (whole < 3600) {
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
  }
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace longtune::cli
