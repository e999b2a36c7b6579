#include "apps/machine.h"

#include "device/peak.h"
#include "device/read_bandwidth.h"
#include "device/threads.h"
#include "ops/cpu/isa.h"

namespace longtune::cli {

Machine measure_machine() {
  return {.peak_flops = measure_peak_flops(), .read_bytes_per_s = measure_read_bandwidth()};
}

Json machine_json(const Machine& machine) {
  return {{"isa", ops::name_of(ops::selected_isa())},
          {"threads", threads_in_use()},
          {"peak_flops", machine.peak_flops},
          {"read_bytes_per_s", machine.read_bytes_per_s}};
}

}  // namespace longtune::cli
