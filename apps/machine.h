#pragma once

#include "apps/json_file.h"

namespace longtune::cli {

/// What the machine can do, which benchmarks compare with.
struct Machine {
  double peak_flops = 0;        ///< as measure_peak_flops()
  double read_bytes_per_s = 0;  ///< as measure_read_bandwidth()
};

/// Takes about half a second.
[[nodiscard]] Machine measure_machine();

/// "machine" of a benchmark's result, with the instruction set and the threads in use.
[[nodiscard]] Json machine_json(const Machine& machine);

}  // namespace longtune::cli
