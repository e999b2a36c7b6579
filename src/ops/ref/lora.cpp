#include "ops/lora.h"

#include "base/random.h"
#include "ops/ref/element.h"

namespace longtune::ops::ref {
namespace {

// What element (t, k) of the input, K wide, is multiplied by.
double factor(const Dropout& dropout, std::int64_t t, std::int64_t K, std::int64_t k) {
  const auto counter = static_cast<std::uint64_t>((dropout.first_row + t) * K + k);
  const double p = dropout.p;
  return random_uniform(dropout.key, counter) < p ? 0.0 : 1.0 / (1.0 - p);
}

void add(const TensorView& view, std::int64_t index, double value) {
  set(view, index, get(view, index) + value);
}

}  // namespace

void lora_forward(const LoraForward& args) {
  const auto T = args.x.dim(0);
  const auto K = args.x.dim(1);
  const auto R = args.a.dim(0);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t r = 0; r < R; ++r) {
      double sum = 0;
      for (std::int64_t k = 0; k < K; ++k) {
        sum += factor(args.dropout, t, K, k) * get(args.x, t * K + k) * get(args.a, r * K + k);
      }
      set(args.u, t * R + r, sum);
    }
  }
}

void lora_backward(const LoraBackward& args) {
  const auto T = args.x.dim(0);
  const auto K = args.x.dim(1);
  const auto N = args.dy.dim(1);
  const auto R = args.a.dim(0);
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t n = 0; n < N; ++n) {
      double sum = 0;
      for (std::int64_t t = 0; t < T; ++t) {
        sum += get(args.dy, t * N + n) * get(args.u, t * R + r);
      }
      add(args.db, n * R + r, args.scale * sum);
    }
    for (std::int64_t t = 0; t < T; ++t) {
      double sum = 0;
      for (std::int64_t n = 0; n < N; ++n) {
        sum += get(args.dy, t * N + n) * get(args.b, n * R + r);
      }
      set(args.du, t * R + r, args.scale * sum);
    }
    for (std::int64_t k = 0; k < K; ++k) {
      double sum = 0;
      for (std::int64_t t = 0; t < T; ++t) {
        sum += get(args.du, t * R + r) * factor(args.dropout, t, K, k) * get(args.x, t * K + k);
      }
      add(args.da, r * K + k, sum);
    }
  }
}

void lora_input_backward(const LoraInputBackward& args) {
  const auto T = args.dx.dim(0);
  const auto K = args.dx.dim(1);
  const auto R = args.a.dim(0);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t k = 0; k < K; ++k) {
      double sum = 0;
      for (std::int64_t r = 0; r < R; ++r) {
        sum += get(args.du, t * R + r) * get(args.a, r * K + k);
      }
      add(args.dx, t * K + k, factor(args.dropout, t, K, k) * sum);
    }
  }
}

}  // namespace longtune::ops::ref
