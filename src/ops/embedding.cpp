#include "ops/embedding.h"

#include "device/arena.h"
#include "ops/checks.h"

namespace longtune::ops {

void embedding_forward(const EmbeddingForward& args) {
  expect_activations("embedding", {"y", args.y}, 2);
  const Argument y{"y", args.y};
  expect("embedding", {"tokens", args.tokens}, y, DType::kI32, {args.y.dim(0)});
  if (args.table.K != args.y.dim(1)) {
    fail(ErrorCode::kInvalidArgument,
         "embedding",
         "table {} ({}, {}) does not match the last dimension of y {}",
         name_of(args.table.format),
         args.table.N,
         args.table.K,
         describe(args.y));
  }
  const OperationScope scope("embedding_forward");
  const auto* tokens = args.tokens.as<std::int32_t>();
  for (std::int64_t t = 0; t < args.tokens.dim(0); ++t) {
    if (tokens[t] < 0 || tokens[t] >= args.table.N) {
      fail(ErrorCode::kInvalidArgument,
           "embedding",
           "token {} at row {} is outside the vocabulary of {}",
           tokens[t],
           t,
           args.table.N);
    }
  }
  cpu::embedding_forward(args);
}

}  // namespace longtune::ops
