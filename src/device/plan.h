#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/arena.h"

namespace longtune {

enum class Tier : std::uint8_t { kDevice, kHost, kDisk };

/// "device", "host", "disk".
[[nodiscard]] const char* name_of(Tier tier);

/// What the process takes beside the planned memory: code, libraries, the tokenizer, and for each
/// thread its stack and packing buffers. The resident peak is at most device + host + this.
[[nodiscard]] constexpr std::int64_t process_bytes(int threads) {
  return (96 + 4 * std::int64_t{threads}) * 1024 * 1024;
}

/// Bytes that a run needs, by purpose and tier.
struct Plan {
  struct Row {
    std::string purpose;
    Tier tier = Tier::kDevice;
    std::int64_t bytes = 0;
  };

  std::vector<Row> rows;

  /// Adds to the row of that purpose and tier, or appends one.
  void add(std::string_view purpose, Tier tier, std::int64_t bytes);

  [[nodiscard]] std::int64_t need(Tier tier) const;
};

/// Limits in bytes; nothing where there is none.
struct Budgets {
  // What the user allows a tier.
  std::optional<std::int64_t> device;
  std::optional<std::int64_t> host;
  std::optional<std::int64_t> disk;

  // What the machine has, to be set where the user leaves it open.
  /// For device and host together, which on a CPU are the same memory, the process' own taken off.
  std::optional<std::int64_t> machine_memory;
  std::optional<std::int64_t> machine_disk;  ///< in --spill-dir

  /// What the user allows.
  [[nodiscard]] std::optional<std::int64_t> of(Tier tier) const;

  /// Whether the machine's limit is what holds for a tier.
  [[nodiscard]] bool is_machines(Tier tier) const;

  [[nodiscard]] bool has_any() const;
};

[[nodiscard]] bool fits(const Plan& plan, const Budgets& budgets);

/// One line about the first limit that a plan breaks: the need, what is there, the three largest
/// purposes of what is too small, and `remedy` ("it fits with --context 4096"). Throws Error
/// kInternal where the plan fits.
[[nodiscard]] std::string refusal(const Plan& plan,
                                  const Budgets& budgets,
                                  const std::string& remedy);

/// Throws Error kOutOfBudget with that line.
[[noreturn]] void fail_out_of_budget(const Plan& plan,
                                     const Budgets& budgets,
                                     const std::string& remedy);

}  // namespace longtune
