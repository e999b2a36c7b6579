#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "device/plan.h"
#include "device/profile.h"
#include "io/disk_speed.h"
#include "kv/tiered_store.h"
#include "model/config.h"
#include "model/options.h"

namespace longtune::cli {

/// What a benchmark measured as a whole.
struct BenchTotals {
  std::string name;  ///< "step", "prefill"
  double seconds = 0;
  double flops = 0;  ///< by formula
  std::int64_t tokens = 0;
  std::int64_t context = 0;
  double attended = 1;  ///< of all pairs of a query and a token of a closed chunk before it
  std::int64_t device_bytes = 0;
  Plan plan;
  std::optional<TieredKvStore::Traffic> traffic;
  std::optional<DiskSpeed> disk;  ///< of the disk alone, where it is used
};

/// What the disk of --spill-dir does by itself with pages of that size, where the plan uses it.
[[nodiscard]] std::optional<DiskSpeed> speed_of_disk(const ModelOptions& model,
                                                     const ModelConfig& config,
                                                     const Plan& plan);

/// A row per operation, the slowest first; then what each tier holds, what moved between them, and
/// the speed.
void print_bench(std::vector<OperationTotals> rows,
                 const BenchTotals& totals,
                 const Budgets& budgets,
                 double peak_flops);

[[nodiscard]] Json bench_json(const std::vector<OperationTotals>& rows,
                              const BenchTotals& totals,
                              double peak_flops);

}  // namespace longtune::cli
