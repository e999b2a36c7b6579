#include "apps/bench_table.h"

#include <algorithm>

#include "apps/console.h"
#include "apps/plan_table.h"
#include "base/bytes.h"
#include "ops/cpu/isa.h"

namespace longtune::cli {
namespace {

void print_rows(const std::vector<OperationTotals>& rows,
                const BenchTotals& totals,
                double peak_flops) {
  print_output("{:<24}{:>8}{:>10}{:>12}{:>11}{:>10}\n",
               "operation",
               "calls",
               "seconds",
               "of " + totals.name,
               "GFLOP/s",
               "of limit");
  double seconds = 0;
  for (const OperationTotals& row : rows) {
    seconds += row.seconds;
    const double rate = row.flops / row.seconds;
    print_output("{:<24}{:>8}{:>10.3f}{:>10.1f} %{:>11}{:>10}\n",
                 row.name,
                 row.calls,
                 row.seconds,
                 100 * row.seconds / totals.seconds,
                 row.flops > 0 ? fmt::format("{:.1f}", rate * 1e-9) : "-",
                 row.flops > 0 ? fmt::format("{:.1f} %", 100 * rate / peak_flops) : "-");
  }
  const double other = totals.seconds - seconds;
  print_output("{:<24}{:>8}{:>10.3f}{:>10.1f} %\n",
               "between operations",
               "",
               other,
               100 * other / totals.seconds);
}

void print_traffic(const TieredKvStore::Traffic& traffic) {
  print_output("keys and values: {} to host memory, {} written to disk, {} read from it",
               format_bytes(traffic.to_host),
               format_bytes(traffic.to_disk),
               format_bytes(traffic.from_disk));
  if (!traffic.disk_method.empty()) {
    print_output(" ({}, {})",
                 traffic.disk_method,
                 traffic.disk_direct ? "direct I/O" : "through the page cache");
  }
  if (traffic.disk_busy > 0) {
    const auto moved = static_cast<double>(traffic.to_disk + traffic.from_disk);
    print_output(" in {:.1f} s ({:.2f} GB/s), {:.1f} s waited for",
                 traffic.disk_busy,
                 moved / traffic.disk_busy * 1e-9,
                 traffic.waited);
  }
  if (traffic.hits + traffic.misses > 0) {
    print_output("; {} of {} pages from the bank", traffic.hits, traffic.hits + traffic.misses);
  }
  print_output("\n");
}

void print_disk(const DiskSpeed& disk) {
  print_output("that disk by itself, in pages: {:.2f} GB/s written, {:.2f} GB/s read\n",
               disk.write_bytes_per_s * 1e-9,
               disk.read_bytes_per_s * 1e-9);
}

}  // namespace

std::optional<DiskSpeed> speed_of_disk(const ModelOptions& model,
                                       const ModelConfig& config,
                                       const Plan& plan) {
  constexpr std::int64_t kEnough = 256 * kMiB;
  const std::int64_t planned = plan.need(Tier::kDisk);
  if (planned == 0 || !model.kv_tiers || !model.kv_tiers->spill_dir) {
    return std::nullopt;
  }
  return measure_disk(*model.kv_tiers->spill_dir,
                      ops::kv_page_bytes(config.Hkv, config.D, model.kv),
                      std::min(planned, kEnough));
}

void print_bench(std::vector<OperationTotals> rows,
                 const BenchTotals& totals,
                 const Budgets& budgets,
                 double peak_flops) {
  std::ranges::sort(rows, std::greater{}, &OperationTotals::seconds);
  print_rows(rows, totals, peak_flops);
  print_output("\n{}", plan_table(totals.plan, budgets));
  if (totals.traffic) {
    print_traffic(*totals.traffic);
  }
  if (totals.disk) {
    print_disk(*totals.disk);
  }
  print_output(
      "{} tokens, {:.1f} % of the history attended\n", totals.context, 100 * totals.attended);
  print_output("{}: {:.3f} s, {:.1f} tokens/s, {:.1f} % of the limit of {:.1f} GFLOP/s\n",
               totals.name,
               totals.seconds,
               static_cast<double>(totals.tokens) / totals.seconds,
               100 * totals.flops / totals.seconds / peak_flops,
               peak_flops * 1e-9);
}

Json bench_json(const std::vector<OperationTotals>& rows,
                const BenchTotals& totals,
                double peak_flops) {
  Json list = Json::array();
  for (const OperationTotals& row : rows) {
    Json json{
        {"name", row.name}, {"calls", row.calls}, {"seconds", row.seconds}, {"share", nullptr}};
    if (row.flops > 0) {
      json["share"] = row.flops / row.seconds / peak_flops;
    }
    list.push_back(json);
  }
  Json total{{"name", totals.name},
             {"seconds", totals.seconds},
             {"share", totals.flops / totals.seconds / peak_flops},
             {"context", totals.context},
             {"tokens_per_s", static_cast<double>(totals.tokens) / totals.seconds},
             {"device_bytes_peak", totals.device_bytes},
             {"host_bytes_peak", totals.plan.need(Tier::kHost)},
             {"disk_bytes_peak", totals.plan.need(Tier::kDisk)},
             {"attended_fraction", totals.attended}};
  if (totals.traffic) {
    total["disk_bytes_written"] = totals.traffic->to_disk;
    total["disk_bytes_read"] = totals.traffic->from_disk;
    total["disk_seconds_waited"] = totals.traffic->waited;
    total["bank_hits"] = totals.traffic->hits;
    total["bank_misses"] = totals.traffic->misses;
    total["disk_method"] = nullptr;
    total["disk_direct"] = nullptr;
    if (!totals.traffic->disk_method.empty()) {
      total["disk_method"] = totals.traffic->disk_method;
      total["disk_direct"] = totals.traffic->disk_direct;
    }
  }
  if (totals.disk) {
    total["disk_write_bytes_per_s"] = totals.disk->write_bytes_per_s;
    total["disk_read_bytes_per_s"] = totals.disk->read_bytes_per_s;
  }
  list.push_back(total);
  return {{"machine", {{"isa", ops::name_of(ops::selected_isa())}, {"peak_flops", peak_flops}}},
          {"rows", list}};
}

}  // namespace longtune::cli
