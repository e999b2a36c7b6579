#include "device/plan.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace longtune {

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

bool fits(const Plan& plan, const Budgets& budgets) {
  return std::ranges::all_of(std::array{Tier::kDevice, Tier::kHost, Tier::kDisk}, [&](Tier tier) {
    return !budgets.of(tier) || plan.need(tier) <= *budgets.of(tier);
  });
}

void fail_out_of_budget(const Plan& plan, const Budgets& budgets, const std::string& remedy) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    if (!budgets.of(tier) || plan.need(tier) <= *budgets.of(tier)) {
      continue;
    }
    std::vector<Plan::Row> rows;
    std::ranges::copy_if(plan.rows, std::back_inserter(rows), [&](const Plan::Row& row) {
      return row.tier == tier;
    });
    std::ranges::stable_sort(rows, std::greater{}, &Plan::Row::bytes);
    std::string largest;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, rows.size()); ++i) {
      largest +=
          fmt::format("{}{} {}", i == 0 ? "" : ", ", rows[i].purpose, format_bytes(rows[i].bytes));
    }
    fail(ErrorCode::kOutOfBudget,
         "plan",
         "needs {} of {} memory, but --{}-memory is {}; largest: {}; {}",
         format_bytes(plan.need(tier)),
         name_of(tier),
         name_of(tier),
         format_bytes(*budgets.of(tier)),
         largest,
         remedy);
  }
  fail(ErrorCode::kInternal, "plan", "refused although it fits");
}

}  // namespace longtune
