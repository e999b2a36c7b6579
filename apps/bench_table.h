#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "device/plan.h"
#include "device/profile.h"
#include "kv/tiered_store.h"

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
};

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
