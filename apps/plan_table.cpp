#include "apps/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/bytes.h"
#include "device/threads.h"
#include "model/flops.h"

namespace longtune::cli {
namespace {

constexpr std::array kTiers = {Tier::kDevice, Tier::kHost, Tier::kDisk};

/// Tiers that hold anything, or have a budget.
[[nodiscard]] std::vector<Tier> tiers_of(const Plan& plan, const Budgets& budgets) {
  std::vector<Tier> tiers;
  std::ranges::copy_if(kTiers, std::back_inserter(tiers), [&](Tier tier) {
    return plan.need(tier) > 0 || budgets.of(tier).has_value();
  });
  return tiers;
}

/// What the machine has, as far as it is what the plan is compared with.
[[nodiscard]] std::string machine_line(const Budgets& budgets) {
  std::string text;
  if (budgets.machine_memory) {
    text = fmt::format("{} of memory for device and host together",
                       format_bytes(*budgets.machine_memory));
  }
  if (budgets.machine_disk) {
    text += fmt::format("{}room for {} in --spill-dir",
                        text.empty() ? "" : ", and ",
                        format_bytes(*budgets.machine_disk));
  }
  return text.empty() ? text : "the machine has " + text + "\n";
}

}  // namespace

std::string plan_table(const Plan& plan, const Budgets& budgets) {
  const std::vector<Tier> tiers = tiers_of(plan, budgets);
  std::vector<std::string> purposes;  // in the plan's order
  std::map<std::pair<std::string, Tier>, std::int64_t> cells;
  for (const Plan::Row& row : plan.rows) {
    if (std::ranges::find(purposes, row.purpose) == purposes.end()) {
      purposes.push_back(row.purpose);
    }
    cells[{row.purpose, row.tier}] += row.bytes;
  }
  std::string text = fmt::format("{:<28}", "purpose");
  for (const Tier tier : tiers) {
    text += fmt::format("{:>14}", longtune::name_of(tier));
  }
  const auto add_row = [&](const std::string& title, const auto& cell) {
    text += fmt::format("\n{:<28}", title);
    for (const Tier tier : tiers) {
      text += fmt::format("{:>14}", cell(tier));
    }
  };
  for (const std::string& purpose : purposes) {
    add_row(purpose, [&](Tier tier) {
      const std::int64_t bytes = cells[{purpose, tier}];
      return bytes == 0 ? std::string("-") : format_bytes(bytes);
    });
  }
  add_row("need", [&](Tier tier) { return format_bytes(plan.need(tier)); });
  add_row("budget", [&](Tier tier) {
    return budgets.of(tier)            ? format_bytes(*budgets.of(tier))
           : budgets.is_machines(tier) ? std::string("the machine's")
                                       : std::string("no limit");
  });
  return text + "\n" + machine_line(budgets);
}

std::string plan_line(const Plan& plan, const Budgets& budgets) {
  std::string text;
  for (const Tier tier : tiers_of(plan, budgets)) {
    text += fmt::format("{}{} {}{}",
                        text.empty() ? "needs " : ", ",
                        longtune::name_of(tier),
                        format_bytes(plan.need(tier)),
                        budgets.of(tier) ? " of " + format_bytes(*budgets.of(tier)) : "");
  }
  return text;
}

Json plan_json(const Plan& plan, const Budgets& budgets) {
  const auto known = [](std::optional<std::int64_t> limit) {
    return limit ? Json(*limit) : Json(nullptr);
  };
  Json result;
  result["fits"] = fits(plan, budgets);
  for (const Tier tier : kTiers) {
    result[longtune::name_of(tier)] = {{"need", plan.need(tier)},
                                       {"budget", known(budgets.of(tier))}};
  }
  result["machine"] = {{"memory", known(budgets.machine_memory)},
                       {"disk", known(budgets.machine_disk)}};
  result["process_bytes"] = process_bytes(threads_in_use());
  result["purposes"] = Json::array();
  for (const Plan::Row& row : plan.rows) {
    result["purposes"].push_back(
        {{"name", row.purpose}, {"tier", longtune::name_of(row.tier)}, {"bytes", row.bytes}});
  }
  return result;
}

std::string context_note(const ModelConfig& config, const RopeChoice& rope, std::int64_t context) {
  const std::int64_t made_for = with_rope(config, rope).max_context;
  if (made_for == 0 || context <= made_for) {
    return "";
  }
  std::string remedy;
  if (const std::int64_t original = with_rope(config, RopeOverride{}).max_context; original > 0) {
    RopeOverride wide{
        .scaling = RopeScaling::kYarn,
        .factor = std::ceil(static_cast<double>(context) / static_cast<double>(original))};
    if (rope && rope->scaling == RopeScaling::kLinear) {
      wide.scaling = RopeScaling::kLinear;
    }
    remedy = fmt::format(", which --rope-scaling {} is for", text_of(RopeChoice(wide)));
  }
  return fmt::format(
      "note: the model{} was made for {} tokens; a context of {} goes beyond that{}\n",
      rope ? fmt::format(", with --rope-scaling {},", text_of(rope)) : "",
      made_for,
      context,
      remedy);
}

double step_flops(const ModelConfig& config, const TrainOptions& options) {
  const std::int64_t segment = options.segment == 0 ? options.context : options.segment;
  double flops = 0;
  for (std::int64_t first = 0; first < options.context; first += segment) {
    const std::int64_t tokens = std::min(segment, options.context - first);
    flops += training_flops(
        config,
        options.lora,
        options.model.attention,
        {.tokens = tokens, .first_position = first, .scored = tokens, .kept = options.kept});
  }
  return flops * static_cast<double>(options.accumulate);
}

}  // namespace longtune::cli
