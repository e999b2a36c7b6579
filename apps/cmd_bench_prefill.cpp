#include <chrono>

#include "apps/bench_table.h"
#include "apps/command.h"
#include "apps/console.h"
#include "apps/options.h"
#include "base/random.h"
#include "device/peak.h"
#include "infer/session.h"
#include "model/flops.h"

namespace longtune::cli {
namespace {

struct BenchArgs {
  ModelArgs model;
  MemoryArgs memory;
  CommonArgs common;
  std::int64_t context = 2048;
  std::int64_t block = 512;
};

[[nodiscard]] std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] =
        static_cast<std::int32_t>(random_bits(1, i) % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

}  // namespace

Outcome run_bench_prefill(const std::vector<std::string>& arguments,
                          std::optional<std::filesystem::path>& json) {
  BenchArgs args;
  OptionSet options("bench prefill --model PATH|--shape NAME [options]",
                    "Shows where the time of reading a sequence of random tokens goes");
  add_model_options(options, args.model);
  add_shape_model_options(options, args.model);
  add_memory_options(options, args.memory);
  options.group("Sequence");
  options.add({"context", "N", "tokens to read"}, args.context);
  options.add({"block", "N", "tokens computed at once"}, args.block);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  resolve_model(options, args.model);
  prepare(args.common, json);

  const std::unique_ptr<ModelSource> source = open_source(options, args.model);
  const SessionOptions session_options{.model = args.model.options,
                                       .context = args.context,
                                       .block = args.block,
                                       .adapter = args.model.adapter};
  const Budgets budgets = budgets_of(args.memory, args.model);
  Session session(*source, session_options, budgets, {});
  const double peak_flops = measure_peak_flops();
  const std::optional<DiskSpeed> disk =
      speed_of_disk(args.model.options, source->config(), session.plan());
  const std::vector<std::int32_t> tokens = random_tokens(args.context, source->config().V);
  const auto start = std::chrono::steady_clock::now();
  const Profile profile;
  (void)session.read(tokens);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const AttentionOptions& attention = args.model.options.attention;
  const BenchTotals totals{
      .name = "prefill",
      .seconds = seconds.count(),
      .flops = forward_flops(source->config(), nullptr, attention, args.context, 0, 1),
      .tokens = args.context,
      .context = args.context,
      .attended = history_attended(attention, args.context, 0),
      .device_bytes = session.device_bytes_peak(),
      .plan = session.plan(),
      .traffic = session.traffic(),
      .disk = disk};
  print_bench(profile.rows(), totals, budgets, peak_flops);
  return {.result = bench_json(profile.rows(), totals, peak_flops)};
}

}  // namespace longtune::cli
