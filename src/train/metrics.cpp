#include "train/metrics.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/atomic_file.h"
#include "model/flops.h"

namespace longtune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void fail_to_write(const std::string& path) {
  fail(ErrorCode::kIo, "metrics", "cannot write {}: {}", path, std::strerror(errno));
}

constexpr const char* kHeldOut = "held_out_nats";

struct KeptLines {
  std::string text;
  std::int64_t last_step = 0;
  bool is_last_evaluated = false;
  std::int64_t tokens = 0;
  double seconds = 0;
};

// The member of that name where it is a number; else 0.
template <class T>
T number_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<T>() : T{};
}

// The lines of steps up to `steps_done`; a last line that a kill cut off is left out too.
KeptLines kept_lines(const fs::path& path, std::int64_t steps_done) {
  KeptLines kept;
  std::error_code ignored;  // as for a file that is not there
  if (!fs::exists(path, ignored)) {
    return kept;
  }
  std::ifstream file(path);
  if (!file) {
    fail(ErrorCode::kIo, "metrics", "cannot read {}: {}", path.string(), std::strerror(errno));
  }
  for (std::string line; std::getline(file, line);) {
    const Json object = Json::parse(line, nullptr, false);
    if (!object.is_object()) {
      continue;
    }
    const auto step = number_in<std::int64_t>(object, "step");
    if (step >= 1 && step <= steps_done) {
      kept.text.append(line).append(1, '\n');
      kept.last_step = step;
      kept.is_last_evaluated = object.contains(kHeldOut);
      kept.tokens += number_in<std::int64_t>(object, "tokens");
      kept.seconds += number_in<double>(object, "seconds");
    }
  }
  if (file.bad()) {
    fail(ErrorCode::kIo, "metrics", "cannot read all of {}", path.string());
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, std::int64_t steps_done)
    : path_(path.string()), file_(nullptr, std::fclose) {
  const KeptLines kept = kept_lines(path, steps_done);
  last_step_ = kept.last_step;
  is_last_evaluated_ = kept.is_last_evaluated;
  tokens_ = kept.tokens;
  seconds_ = kept.seconds;
  write_file(path, kept.text);
  file_.reset(std::fopen(path_.c_str(), "r+"));
  if (file_ == nullptr || std::fseek(file_.get(), 0, SEEK_END) != 0) {
    fail_to_write(path_);
  }
}

void MetricsFile::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    fail_to_write(path_);
  }
}

void MetricsFile::add_evaluation(std::int64_t step, double held_out_nats) {
  if (step != last_step_ || is_last_evaluated_) {
    return;
  }
  // The line ends in "}" and a line feed.
  if (std::fseek(file_.get(), -2, SEEK_END) != 0) {
    fail_to_write(path_);
  }
  write(fmt::format(",\"{}\":{}}}\n", kHeldOut, Json(held_out_nats).dump()));
  is_last_evaluated_ = true;
}

void MetricsFile::append(const StepReport& report, const Trainer& trainer, double peak_flops) {
  Json object;
  object["step"] = report.step;
  object["loss"] = report.loss;
  object["lr"] = report.lr;
  object["grad_norm"] = report.grad_norm;
  object["tokens"] = report.tokens;
  object["targets"] = report.targets;
  object["tokens_per_s"] = static_cast<double>(report.tokens) / report.seconds;
  object["share_of_limit"] = nullptr;
  if (peak_flops > 0) {
    object["share_of_limit"] = report.flops / report.seconds / peak_flops;
  }
  object["device_bytes_peak"] = trainer.device_bytes_peak();
  object["host_bytes"] = trainer.host_bytes_peak();
  object["disk_bytes"] = trainer.plan().need(Tier::kDisk);
  object["attended_fraction"] =
      history_attended(trainer.options().model.attention, trainer.options().context, 0);
  object["seconds"] = report.seconds;
  object["samples"] = report.samples;
  write(object.dump() + "\n");
  last_step_ = report.step;
  is_last_evaluated_ = false;
  tokens_ += report.tokens;
  seconds_ += report.seconds;
}

}  // namespace longtune
