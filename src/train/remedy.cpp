#include "train/remedy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "model/layer.h"
#include "ops/kv_pages.h"

namespace longtune {
namespace {

// Nothing where there is none: NF4 does not take every width; keys and values may have nowhere to
// go.
std::optional<Plan> plan_of(const std::function<Plan()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kOutOfBudget) {
      return std::nullopt;
    }
    throw;
  }
}

bool would_fit(const ModelSource& source,
               const TrainOptions& options,
               std::int64_t data_bytes,
               const Budgets& budgets) {
  const auto plan = plan_of([&] { return Trainer::plan(source, options, data_bytes); });
  return plan && fits(*plan, budgets);
}

// Of one layer's products.
std::int64_t linear_output_bytes(const ModelSource& source, const TrainOptions& options) {
  const std::int64_t T =
      options.segment == 0 ? options.context : std::min(options.segment, options.context);
  const auto bytes = [&](LayerKept kept) {
    Arena arena = Arena::planning();
    const KeptActivations taken(
        source.config(), &options.lora, options.model.activations, T, kept, arena);
    return arena.used();
  };
  return bytes(LayerKept::kProducts) - bytes(LayerKept::kAttention);
}

// Of those that are shorter than the one asked for and come from halving it.
std::optional<std::int64_t> longest_segment(const ModelSource& source,
                                            const TrainOptions& options,
                                            std::int64_t data_bytes,
                                            const Budgets& budgets) {
  const std::int64_t segment = options.segment == 0 ? options.context : options.segment;
  const std::int64_t unit = options.model.attention.segment_unit();
  std::int64_t shorter = (std::min(segment, options.context) - 1) / unit * unit;
  for (; shorter >= 256; shorter = shorter / 2 / unit * unit) {
    TrainOptions tried = options;
    tried.segment = shorter;
    if (would_fit(source, tried, data_bytes, budgets)) {
      return shorter;
    }
  }
  return std::nullopt;
}

}  // namespace

Kept what_to_keep(const ModelSource& source,
                  const TrainOptions& options,
                  std::int64_t data_bytes,
                  const Budgets& budgets,
                  std::int64_t product_bytes) {
  const auto can_keep = [&](const Kept& kept) {
    TrainOptions tried = options;
    tried.kept = kept;
    return would_fit(source, tried, data_bytes, budgets);
  };
  Kept kept{.attention = true};
  if (!can_keep(kept)) {
    return {};
  }
  const std::int64_t each = linear_output_bytes(source, options);
  std::int64_t failing = std::min(source.config().L, product_bytes / each) + 1;
  while (failing - kept.product_layers > 1) {
    const std::int64_t middle = kept.product_layers + (failing - kept.product_layers) / 2;
    if (can_keep({.attention = true, .product_layers = middle})) {
      kept.product_layers = middle;
    } else {
      failing = middle;
    }
  }
  return kept;
}

std::optional<std::string> fitting_spill(const ModelOptions& model,
                                         const ModelPlan& plan,
                                         const Budgets& budgets) {
  ModelOptions tried = model;
  tried.kv_tiers = model.kv_tiers.value_or(KvTiers{});
  if (!tried.kv_tiers->spill_dir) {
    tried.kv_tiers->spill_dir = "DIR";  // a plan makes nothing there
  }
  const auto try_with = [&](std::int64_t host_bytes) {
    tried.kv_tiers->host_bytes = host_bytes;
    return plan_of([&] { return plan(tried); });
  };
  const std::optional<Plan> least = try_with(0);
  if (!least || (!budgets.host && !budgets.machine_memory)) {
    return std::nullopt;
  }
  const std::int64_t host = least->need(Tier::kHost);
  constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  std::int64_t room =
      std::min(budgets.host.value_or(kNoLimit) - host,
               budgets.machine_memory.value_or(kNoLimit) - host - least->need(Tier::kDevice));
  room = room < 0 ? room : room / kMiB * kMiB;
  const std::optional<Plan> most = room < 0 ? std::nullopt : try_with(room);
  if (!most || !fits(*most, budgets)) {
    return std::nullopt;
  }
  const std::string setting = fmt::format("--kv-host {}MiB", room / kMiB);
  const bool names_directory = model.kv_tiers && model.kv_tiers->spill_dir;
  return names_directory || most->need(Tier::kDisk) == 0 ? setting : setting + " --spill-dir DIR";
}

std::int64_t longest_context(const ModelSource& source,
                             const TrainOptions& options,
                             std::int64_t data_bytes,
                             const Budgets& budgets) {
  const auto fits_pages = [&](std::int64_t pages) {
    TrainOptions tried = options;
    tried.context = pages * ops::kPageTokens;
    tried.kept = {};
    return would_fit(source, tried, data_bytes, budgets);
  };
  // No budget, no end: 2^24 tokens stand for "as long as you like".
  std::int64_t fitting = 0;
  std::int64_t failing = (std::int64_t{1} << 24) / ops::kPageTokens + 1;
  while (failing - fitting > 1) {
    const std::int64_t middle = fitting + (failing - fitting) / 2;
    (fits_pages(middle) ? fitting : failing) = middle;
  }
  return fitting * ops::kPageTokens;
}

std::vector<std::string> nearest_settings(const ModelSource& source,
                                          const TrainOptions& options,
                                          std::int64_t data_bytes,
                                          const Budgets& budgets) {
  std::vector<std::string> result;
  const auto fitting_segment = longest_segment(source, options, data_bytes, budgets);
  if (fitting_segment) {
    result.push_back(fmt::format("--segment {}", *fitting_segment));
  }
  if (options.model.base != BaseWeights::kNf4) {
    TrainOptions tried = options;
    tried.model.base = BaseWeights::kNf4;
    if (would_fit(source, tried, data_bytes, budgets)) {
      result.emplace_back("--base-weights nf4");
    }
  }
  if (options.offload != Offload{.inputs = true, .moments = true}) {
    TrainOptions tried = options;
    tried.offload = {.inputs = true, .moments = true};
    if (would_fit(source, tried, data_bytes, budgets)) {
      result.emplace_back("--offload both");
    } else if (!fitting_segment) {
      const auto segment = longest_segment(source, tried, data_bytes, budgets);
      if (segment) {
        result.push_back(fmt::format("--offload both --segment {}", *segment));
      }
    }
  }
  const auto plan_with = [&](const ModelOptions& model) {
    TrainOptions tried = options;
    tried.model = model;
    return Trainer::plan(source, tried, data_bytes);
  };
  if (const auto spill = fitting_spill(options.model, plan_with, budgets)) {
    result.push_back(*spill);
  }
  const std::int64_t context = longest_context(source, options, data_bytes, budgets);
  if (context > 0 && context < options.context) {
    result.push_back(fmt::format("--context {}", context));
  }
  return result;
}

std::string remedy_of(const std::vector<std::string>& settings) {
  return settings.empty() ? "no single setting makes it fit"
                          : fmt::format("it fits with {}", fmt::join(settings, " or "));
}

}  // namespace longtune
