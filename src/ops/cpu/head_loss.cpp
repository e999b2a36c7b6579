#include "ops/head_loss.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/gemm.h"
#include "ops/cpu/softmax.h"

namespace longtune::ops::cpu {
namespace {

constexpr std::int64_t kWorthWaking = 32'768;  // logits: fewer are not worth waking threads for

// Loss of one position; its logits become their gradient, or are left as they happen to be where
// none is wanted.
float loss_of(const SoftmaxKernels& kernels, const HeadLoss& args, std::int64_t t, float* logits) {
  const auto V = args.weight.N;
  const std::int32_t target = args.targets.as<std::int32_t>()[t];
  if (target == kNoTarget) {
    std::fill_n(logits, args.dx ? V : 0, 0.0F);
    return 0;
  }
  const double target_logit = logits[target];
  const float largest = kernels.largest(logits, V);
  const double sum = kernels.exponentiate(logits, V, largest);
  if (args.dx) {
    kernels.multiply(logits, V, static_cast<float>(args.grad_scale / sum));
    logits[target] -= args.grad_scale;
  }
  return static_cast<float>(std::log(sum) + (static_cast<double>(largest) - target_logit));
}

bool has_target(const HeadLoss& args, std::int64_t first, std::int64_t count) {
  const auto* targets = args.targets.as<std::int32_t>() + first;
  return std::any_of(targets, targets + count, [](std::int32_t t) { return t != kNoTarget; });
}

}  // namespace

void head_loss(const HeadLoss& args) {
  const auto T = args.x.dim(0);
  const auto V = args.weight.N;
  const SoftmaxKernels& kernels = softmax_kernels();
  for (std::int64_t first = 0; first < T; first += args.logits.dim(0)) {
    const std::int64_t count = std::min(args.logits.dim(0), T - first);
    const TensorView logits = args.logits.rows(0, count);
    if (!has_target(args, first, count)) {
      std::fill_n(args.losses.as<float>() + first, count, 0.0F);
      if (args.dx) {
        const TensorView dx = args.dx.rows(first, count);
        std::fill_n(dx.data, dx.bytes(), std::byte{0});
      }
      continue;
    }
    gemm({.c = logits,
          .a = args.x.rows(first, count),
          .b = args.weight,
          .b_layout = Layout::kTransposed});
#pragma omp parallel for schedule(dynamic) if (count * V > kWorthWaking)
    for (std::int64_t i = 0; i < count; ++i) {
      args.losses.as<float>()[first + i] =
          loss_of(kernels, args, first + i, logits.as<float>() + i * V);
    }
    if (args.dx) {
      gemm({.c = args.dx.rows(first, count), .a = logits, .b = args.weight});
    }
  }
}

}  // namespace longtune::ops::cpu
