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

  /// Whether the last line says what the held-out loss was.
  [[nodiscard]] bool is_last_evaluated() const { return is_last_evaluated_; }

  /// Adds the held-out loss to the last line, which there is.
  void add_evaluation(double held_out_nats);

  /// Sums over the lines of the file.
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }

  [[nodiscard]] double seconds() const { return seconds_; }

  void append(const StepReport& report,
              const Trainer& trainer,
              double peak_flops,
              std::optional<double> held_out_nats);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  void open();

  bool is_last_evaluated_ = false;
  std::int64_t tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace longtune
