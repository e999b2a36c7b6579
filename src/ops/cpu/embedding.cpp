#include "ops/embedding.h"

#include <algorithm>

namespace longtune::ops::cpu {
namespace {

// Values unpacked at a time: a multiple of every format's block, small enough for the stack.
constexpr std::int64_t kStep = 1024;

template <class Float>
void copy_row(const WeightView& table, std::int64_t token, Float* y) {
  float values[kStep];
  for (std::int64_t column = 0; column < table.K; column += kStep) {
    const std::int64_t count = std::min(kStep, table.K - column);
    unpack(table, token, column, count, values);
    for (std::int64_t c = 0; c < count; ++c) {
      y[column + c] = Float(values[c]);
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& args) {
  const auto T = args.y.dim(0);
  const auto C = args.y.dim(1);
  const auto* tokens = args.tokens.as<std::int32_t>();
  with_float_type(args.y.dtype, [&]<class Float>(Float*) {
#pragma omp parallel for schedule(static)
    for (std::int64_t t = 0; t < T; ++t) {
      copy_row(args.table, tokens[t], args.y.as<Float>() + t * C);
    }
  });
}

}  // namespace longtune::ops::cpu
