#include "ops/embedding.h"

#include <vector>

namespace longtune::ops::ref {

void embedding_forward(const EmbeddingForward& args) {
  const auto T = args.y.dim(0);
  const auto C = args.y.dim(1);
  std::vector<float> row(static_cast<std::size_t>(C));
  for (std::int64_t t = 0; t < T; ++t) {
    unpack(args.table, args.tokens.as<std::int32_t>()[t], 0, C, row.data());
    with_float_type(args.y.dtype, [&]<class Float>(Float*) {
      for (std::int64_t c = 0; c < C; ++c) {
        args.y.as<Float>()[t * C + c] = Float(row[static_cast<std::size_t>(c)]);
      }
    });
  }
}

}  // namespace longtune::ops::ref
