#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "train/trainer.h"

namespace longtune {

/// `metrics.jsonl`: one JSON object a step, appended and flushed at once, with step, loss (nats),
/// lr, grad_norm, tokens, tokens_per_s, share_of_limit (of the machine's measured peak; null where
/// that is not known), device_bytes_peak, host_bytes, disk_bytes, attended_fraction (of the
/// history), seconds, samples (indices in the data set), and held_out_nats where the step was
/// evaluated.
class MetricsFile {
 public:
  /// Opens the file to append, without what it holds of steps after `steps_done`: those will be
  /// made again. Throws Error kIo where the system refuses.
  MetricsFile(const std::filesystem::path& path, std::int64_t steps_done);

  void append(const StepReport& report, const Trainer& trainer, double peak_flops);

  /// Whether the line of `step` is the last and says what the held-out loss was.
  [[nodiscard]] bool is_evaluated(std::int64_t step) const {
    return step == last_step_ && is_last_evaluated_;
  }

  /// Adds the held-out loss to the line of `step`, if that is the last one and has none yet.
  void add_evaluation(std::int64_t step, double held_out_nats);

  /// Sums over the lines of the file.
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  void write(const std::string& text);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t last_step_ = 0;
  bool is_last_evaluated_ = false;
  std::int64_t tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace longtune
