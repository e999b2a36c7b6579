#include "ops/cpu/dropout.h"

#include <cmath>

#include "base/random.h"
#include "ops/cpu/isa.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;  // of random_bits, from counter to counter

}  // namespace

void dropout_run_portable(const DropoutRun& run, std::int64_t count, float* factors) {
  std::uint64_t state = run.state;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<std::int64_t>(splitmix(state) >> 11U);
    factors[i] = drawn < run.dropped ? 0.0F : run.kept;
    state += run.step;
  }
}

void dropout_factors(const Dropout& dropout,
                     std::int64_t t,
                     std::int64_t K,
                     std::int64_t first,
                     std::int64_t count,
                     float* factors) {
  const auto counter = static_cast<std::uint64_t>((dropout.first_row + t) * K + first);
  const double dropped = std::ceil(static_cast<double>(dropout.p) * 0x1p53);
  const DropoutRun run = {.state = splitmix(dropout.key + kStep) + (counter + 1) * kStep,
                          .step = kStep,
                          .dropped = static_cast<std::int64_t>(dropped),
                          .kept = 1.0F / (1.0F - dropout.p)};
#if defined(__x86_64__)
  if (selected_isa() >= Isa::kAvx512) {
    dropout_run_avx512(run, count, factors);
    return;
  }
  if (selected_isa() == Isa::kAvx2) {
    dropout_run_avx2(run, count, factors);
    return;
  }
#endif
  dropout_run_portable(run, count, factors);
}

}  // namespace longtune::ops::cpu
