#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/head_loss.h"

namespace longtune {
namespace {

// Nats and tokens by position in the window.
struct Sums {
  std::vector<double> nats;
  std::vector<std::int64_t> tokens;
};

PerplexityResult summarise(const Sums& sums, const std::vector<std::int64_t>& edges) {
  PerplexityResult result;
  const auto context = static_cast<std::int64_t>(sums.nats.size());
  double total = 0;
  for (std::size_t i = 0; i < edges.size() && edges[i] < context; ++i) {
    const std::int64_t to = i + 1 < edges.size() ? std::min(edges[i + 1], context) : context;
    PerplexityResult::Bucket bucket{.from = edges[i], .to = to};
    double nats = 0;
    for (std::int64_t position = bucket.from; position < to; ++position) {
      nats += sums.nats[position];
      bucket.tokens += sums.tokens[position];
    }
    bucket.nats = bucket.tokens > 0 ? nats / static_cast<double>(bucket.tokens) : 0;
    total += nats;
    result.tokens += bucket.tokens;
    result.buckets.push_back(bucket);
  }
  result.nats = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.nats);
  return result;
}

}  // namespace

void check(const PerplexityOptions& options) {
  if (options.context < 2) {
    fail(ErrorCode::kInvalidArgument, "perplexity", "--context {} is not above 1", options.context);
  }
  if (options.stride < 0 || options.stride > options.context) {
    fail(ErrorCode::kInvalidArgument,
         "perplexity",
         "--stride {} is not between 1 and the context of {}",
         options.stride,
         options.context);
  }
  if (options.buckets.empty() || options.buckets.front() != 0 ||
      !std::ranges::is_sorted(options.buckets, std::less_equal{})) {
    fail(ErrorCode::kInvalidArgument, "perplexity", "--buckets must ascend from 0");
  }
}

PerplexityResult perplexity(Session& session,
                            const std::vector<std::int32_t>& tokens,
                            const PerplexityOptions& options,
                            const std::function<void(double)>& progress) {
  check(options);
  const auto total = static_cast<std::int64_t>(tokens.size());
  if (total < 2) {
    fail(ErrorCode::kBadInput, "perplexity", "a text of {} tokens has nothing to score", total);
  }
  const std::int64_t stride = options.stride == 0 ? options.context : options.stride;
  Sums sums{.nats = std::vector<double>(options.context),
            .tokens = std::vector<std::int64_t>(options.context)};
  std::vector<PerplexityResult::TokenLoss> losses;
  std::int64_t scored_end = 0;  // tokens before it were scored, or begin their window
  for (std::int64_t start = 0; start + 1 < total && scored_end < total; start += stride) {
    const std::int64_t end = std::min(start + options.context, total);
    std::vector<std::int32_t> targets(end - start, ops::kNoTarget);
    for (std::int64_t i = std::max(start + 1, scored_end); i < end; ++i) {
      targets[i - 1 - start] = tokens[i];
    }
    session.reset();
    const auto nats = session.score(std::span(tokens).subspan(start, end - start), targets);
    for (std::int64_t i = 0; i < end - start; ++i) {
      if (targets[i] != ops::kNoTarget) {
        sums.nats[i + 1] += nats[i];
        ++sums.tokens[i + 1];
        if (options.keep_losses) {
          losses.push_back({.token = start + i + 1, .position = i + 1, .nats = nats[i]});
        }
      }
    }
    scored_end = end;
    if (progress) {
      progress(static_cast<double>(end) / static_cast<double>(total));
    }
  }
  PerplexityResult result = summarise(sums, options.buckets);
  result.losses = std::move(losses);
  return result;
}

}  // namespace longtune
