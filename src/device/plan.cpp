#include "device/plan.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {
namespace {

/// What tiers have together, of the user's budget for the one or of the machine.
struct Limit {
  std::vector<Tier> tiers;
  std::int64_t need = 0;
  std::int64_t allowed = 0;
  bool is_machines = false;
};

std::optional<Limit> first_broken(const Plan& plan, const Budgets& budgets) {
  std::vector<Limit> limits;
  const auto add =
      [&](std::vector<Tier> tiers, std::optional<std::int64_t> allowed, bool machines) {
        if (allowed) {
          std::int64_t need = 0;
          for (const Tier tier : tiers) {
            need += plan.need(tier);
          }
          limits.push_back({std::move(tiers), need, *allowed, machines});
        }
      };
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    add({tier}, budgets.of(tier), false);
  }
  add({Tier::kDevice, Tier::kHost}, budgets.machine_memory, true);
  add({Tier::kDisk}, budgets.machine_disk, true);
  const auto broken =
      std::ranges::find_if(limits, [](const Limit& limit) { return limit.need > limit.allowed; });
  return broken == limits.end() ? std::nullopt : std::optional(*broken);
}

std::string description(const Limit& limit, const Plan& plan) {
  const std::string need = format_bytes(limit.need);
  const std::string allowed = format_bytes(limit.allowed);
  if (!limit.is_machines) {
    const char* tier = name_of(limit.tiers.front());
    return fmt::format("needs {} of {} memory, but --{}-memory is {}", need, tier, tier, allowed);
  }
  if (limit.tiers.front() == Tier::kDisk) {
    return fmt::format("needs {} of disk, but --spill-dir has room for {}", need, allowed);
  }
  return fmt::format("needs {} of memory (device {}, host {}), but this machine has {} for both",
                     need,
                     format_bytes(plan.need(Tier::kDevice)),
                     format_bytes(plan.need(Tier::kHost)),
                     allowed);
}

/// For those who plan for another machine, or know more than the system says.
std::string way_round(const Limit& limit) {
  if (!limit.is_machines) {
    return "";
  }
  return limit.tiers.front() == Tier::kDisk
             ? "; to go by another limit, name --disk-memory"
             : "; to go by other limits, name both --device-memory and --host-memory";
}

}  // namespace

const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "?";
}

void Plan::add(std::string_view purpose, Tier tier, std::int64_t bytes) {
  for (Row& row : rows) {
    if (row.purpose == purpose && row.tier == tier) {
      row.bytes += bytes;
      return;
    }
  }
  rows.push_back({std::string(purpose), tier, bytes});
}

std::int64_t Plan::need(Tier tier) const {
  std::int64_t sum = 0;
  for (const Row& row : rows) {
    sum += row.tier == tier ? row.bytes : 0;
  }
  return sum;
}

std::optional<std::int64_t> Budgets::of(Tier tier) const {
  return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : disk;
}

bool Budgets::is_machines(Tier tier) const {
  return !of(tier) && (tier == Tier::kDisk ? machine_disk : machine_memory).has_value();
}

bool Budgets::has_any() const {
  return device || host || disk || machine_memory || machine_disk;
}

bool fits(const Plan& plan, const Budgets& budgets) {
  return !first_broken(plan, budgets);
}

std::string refusal(const Plan& plan, const Budgets& budgets, const std::string& remedy) {
  const std::optional<Limit> broken = first_broken(plan, budgets);
  if (!broken) {
    fail(ErrorCode::kInternal, "plan", "refused although it fits");
  }
  std::vector<Plan::Row> rows;
  std::ranges::copy_if(plan.rows, std::back_inserter(rows), [&](const Plan::Row& row) {
    return std::ranges::find(broken->tiers, row.tier) != broken->tiers.end();
  });
  std::ranges::stable_sort(rows, std::greater{}, &Plan::Row::bytes);
  std::string largest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, rows.size()); ++i) {
    largest +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", rows[i].purpose, format_bytes(rows[i].bytes));
  }
  return fmt::format("[plan] {}; largest: {}; {}{}",
                     description(*broken, plan),
                     largest,
                     remedy,
                     way_round(*broken));
}

void fail_out_of_budget(const Plan& plan, const Budgets& budgets, const std::string& remedy) {
  throw Error(ErrorCode::kOutOfBudget, refusal(plan, budgets, remedy));
}

}  // namespace longtune
