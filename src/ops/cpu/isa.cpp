#include "ops/cpu/isa.h"

#include <atomic>

#include "base/error.h"

namespace longtune::ops {
namespace {

Isa detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return Isa::kPortable;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx2;
  }
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
#else
  return Isa::kPortable;
#endif
}

std::atomic<Isa>& selection() {
  static std::atomic<Isa> isa = best_isa();
  return isa;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512-bf16";
  }
  return "?";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : kAllIsas) {
    if (name == name_of(isa)) {
      return isa;
    }
  }
  return std::nullopt;
}

Isa best_isa() {
  static const Isa isa = detect();
  return isa;
}

Isa selected_isa() {
  return selection().load(std::memory_order_relaxed);
}

void select_isa(Isa isa) {
  if (isa > best_isa()) {
    fail(ErrorCode::kUnsupported,
         "isa",
         "this machine has no {}; the widest it has is {}",
         name_of(isa),
         name_of(best_isa()));
  }
  selection().store(isa, std::memory_order_relaxed);
}

}  // namespace longtune::ops
