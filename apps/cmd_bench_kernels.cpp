#include <algorithm>
#include <cmath>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/timing.h"
#include "apps/command.h"
#include "apps/console.h"
#include "apps/machine.h"
#include "apps/options.h"
#include "device/read_bandwidth.h"
#include "device/threads.h"
#include "ops/cpu/isa.h"

namespace longtune::cli {
namespace {

struct BenchArgs {
  std::string filter;
  CommonArgs common;
};

[[nodiscard]] bench::Kernels kernels_of(const std::string& filter) {
  bench::Kernels kernels;
  bench::add_linear_kernels(kernels);
  bench::add_lora_kernels(kernels);
  bench::add_head_kernels(kernels);
  bench::add_attention_kernels(kernels);
  bench::add_row_kernels(kernels);
  std::erase_if(kernels, [&](const bench::Kernel& kernel) {
    return (kernel.name + " " + kernel.shape).find(filter) == std::string::npos;
  });
  if (kernels.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "bench",
         "--filter '{}' is part of no row; rows are like 'linear_forward q4_1 T 2048 N 576 K 576'",
         filter);
  }
  return kernels;
}

/// What a row shows.
struct Row {
  double seconds = 0;    ///< of one run
  double rate = 0;       ///< operations or bytes a second
  double share = 0;      ///< of the machine's limit
  double cpu_share = 0;  ///< by the CPU time of all threads, of as many threads' part of the limit
};

/// One pass over all copies at a time: a kernel that memory bounds must not find in a cache what
/// its last run left there.
[[nodiscard]] Row measure(const bench::Kernel& kernel, const Machine& machine) {
  const std::int64_t copies =
      kernel.is_bound_by_memory()
          ? std::max<std::int64_t>(
                1, std::llround(static_cast<double>(bytes_beyond_caches()) / kernel.bytes))
          : 1;
  const bench::Kernel::Run run = kernel.prepare(copies);
  const bench::Best best = bench::best_of([&] {
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      run(copy);
    }
  });
  const double work = kernel.is_bound_by_memory() ? kernel.bytes : kernel.flops;
  const double limit = kernel.is_bound_by_memory() ? machine.read_bytes_per_s : machine.peak_flops;
  Row row;
  row.seconds = best.wall / static_cast<double>(copies);
  row.rate = work / row.seconds;
  row.share = row.rate / limit;
  row.cpu_share = work * static_cast<double>(copies) / best.cpu / (limit / threads_in_use());
  return row;
}

void print_head(const Machine& machine) {
  print_output("{}, threads {}, multiply-add peak {:.1f} GFLOP/s, read bandwidth {:.1f} GB/s\n",
               ops::name_of(ops::selected_isa()),
               threads_in_use(),
               machine.peak_flops * 1e-9,
               machine.read_bytes_per_s * 1e-9);
  print_output("{:<22}{:<44}{:>10}{:>16}{:>10}{:>9}\n",
               "kernel",
               "shape",
               "ms",
               "rate",
               "of limit",
               "by CPU");
}

void print_row(const bench::Kernel& kernel, const Row& row) {
  print_output("{:<22}{:<44}{:>10.3f}{:>8.1f} {}{:>8.1f} %{:>7.1f} %\n",
               kernel.name,
               kernel.shape,
               row.seconds * 1e3,
               row.rate * 1e-9,
               kernel.is_bound_by_memory() ? "GB/s   " : "GFLOP/s",
               100 * row.share,
               100 * row.cpu_share);
  flush_output();
}

[[nodiscard]] Json row_json(const bench::Kernel& kernel, const Row& row) {
  return {{"name", kernel.name},
          {"shape", kernel.shape},
          {"seconds", row.seconds},
          {"limit", kernel.is_bound_by_memory() ? "read_bytes_per_s" : "peak_flops"},
          {"share", row.share},
          {"cpu_share", row.cpu_share}};
}

}  // namespace

Outcome run_bench_kernels(const std::vector<std::string>& arguments,
                          std::optional<std::filesystem::path>& json) {
  BenchArgs args;
  OptionSet options("bench kernels [options]",
                    "Times operations at the shapes of training and decoding beside the machine's "
                    "measured limits");
  options.group("Rows");
  options.add({"filter", "TEXT", "only rows whose name and shape hold this", "all"}, args.filter);
  add_common_options(options, args.common, json);
  if (!options.parse(arguments)) {
    write_output(options.help());
    return {};
  }
  const bench::Kernels kernels = kernels_of(args.filter);
  prepare(args.common, json);
  const Machine machine = measure_machine();
  print_head(machine);
  Json rows = Json::array();
  for (const bench::Kernel& kernel : kernels) {
    const Row row = measure(kernel, machine);
    print_row(kernel, row);
    rows.push_back(row_json(kernel, row));
  }
  return {.result = {{"machine", machine_json(machine)}, {"rows", rows}}};
}

}  // namespace longtune::cli
