#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace longtune {
namespace {

constexpr const char* kWhere = "sampler";
constexpr std::uint64_t kSampleStream = 0x73616D706C65;  // "sample"

/// The likeliest token, after checking that all logits are usable.
[[nodiscard]] std::int32_t largest(std::span<const float> logits) {
  std::int64_t best = -1;
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (std::isnan(logits[v]) || logits[v] == INFINITY) {
      fail(ErrorCode::kBadInput,
           kWhere,
           "the model gives token {} a logit of {}: its weights, or its adapter's, are not finite "
           "or "
           "far too large",
           v,
           logits[v]);
    }
    if (logits[v] > (best < 0 ? -INFINITY : logits[static_cast<std::size_t>(best)])) {
      best = static_cast<std::int64_t>(v);
    }
  }
  if (best < 0) {
    fail(ErrorCode::kBadInput, kWhere, "none of {} logits is finite", logits.size());
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "a temperature of {}; 0 (greedy) or more is possible",
         options.temperature);
  }
  if (options.top_k < 0) {
    fail(ErrorCode::kInvalidArgument, kWhere, "a top-k of {}; 0 means all", options.top_k);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    fail(ErrorCode::kInvalidArgument,
         kWhere,
         "a top-p of {}; it must be above 0 and at most 1",
         options.top_p);
  }
}

std::int32_t Sampler::sample(std::span<const float> logits, std::int64_t position) {
  const std::int32_t likeliest = largest(logits);
  if (options_.temperature == 0) {
    return likeliest;
  }
  gather(logits);
  keep_top_k();
  weigh_and_keep_top_p();
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double left = sum * random_uniform(random_key(options_.seed, kSampleStream),
                                     static_cast<std::uint64_t>(position));
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    left -= weights_[i];
    if (left < 0) {
      return candidates_[i].token;
    }
  }
  return likeliest;  // rounding left a last crumb of the sum to nobody
}

void Sampler::gather(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (logits[v] != -INFINITY) {
      candidates_.push_back({logits[v], static_cast<std::int32_t>(v)});
    }
  }
}

void Sampler::keep_top_k() {
  const auto count = static_cast<std::int64_t>(candidates_.size());
  const std::int64_t kept = options_.top_k == 0 ? count : std::min(options_.top_k, count);
  std::partial_sort(candidates_.begin(),
                    candidates_.begin() + kept,
                    candidates_.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
                    });
  candidates_.resize(static_cast<std::size_t>(kept));
}

void Sampler::weigh_and_keep_top_p() {
  weights_.clear();
  const double max = candidates_.front().logit;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp((candidate.logit - max) / options_.temperature));
  }
  const double wanted = options_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < weights_.size() && (kept == 0 || sum < wanted)) {
    sum += weights_[kept++];
  }
  if (options_.top_p < 1) {
    weights_.resize(kept);
    candidates_.resize(kept);
  }
}

}  // namespace longtune
