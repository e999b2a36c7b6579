#include "ops/head_loss.h"

#include <algorithm>
#include <cmath>

#include "ops/ref/element.h"

namespace longtune::ops::ref {
namespace {

std::vector<double> logits_of(const HeadLoss& args,
                              const std::vector<float>& weight,
                              std::int64_t t) {
  const auto V = args.weight.N;
  const auto C = args.weight.K;
  std::vector<double> logits(static_cast<std::size_t>(V));
  for (std::int64_t v = 0; v < V; ++v) {
    for (std::int64_t c = 0; c < C; ++c) {
      logits[v] += get(args.x, t * C + c) * weight[v * C + c];
    }
  }
  return logits;
}

double log_sum_exp(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  return largest + std::log(sum);
}

}  // namespace

void head_loss(const HeadLoss& args) {
  const auto T = args.x.dim(0);
  const auto V = args.weight.N;
  const auto C = args.weight.K;
  const std::vector<float> weight = unpacked(args.weight);
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int32_t target = args.targets.as<std::int32_t>()[t];
    std::vector<double> gradient(static_cast<std::size_t>(C));
    double loss = 0;
    if (target != kNoTarget) {
      const std::vector<double> logits = logits_of(args, weight, t);
      const double normaliser = log_sum_exp(logits);
      loss = normaliser - logits[target];
      for (std::int64_t v = 0; v < V; ++v) {
        const double excess = std::exp(logits[v] - normaliser) - (v == target ? 1.0 : 0.0);
        for (std::int64_t c = 0; c < C; ++c) {
          gradient[c] += args.grad_scale * excess * weight[v * C + c];
        }
      }
    }
    set(args.losses, t, loss);
    for (std::int64_t c = 0; args.dx && c < C; ++c) {
      set(args.dx, t * C + c, gradient[c]);
    }
  }
}

}  // namespace longtune::ops::ref
