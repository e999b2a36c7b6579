#include "ops/convert.h"

#include "base/error.h"
#include "device/arena.h"

namespace longtune::ops {

void convert(const Convert& args) {
  if (!same_shape(args.y, args.x)) {
    fail(ErrorCode::kInvalidArgument,
         "convert",
         "y {} does not match x {}",
         describe(args.y),
         describe(args.x));
  }
  const OperationScope scope("convert");
  with_float_type(args.y.dtype, [&]<class Y>(Y*) {
    with_float_type(args.x.dtype, [&]<class X>(X*) {
      auto* y = args.y.as<Y>();
      const auto* x = args.x.as<X>();
      const std::int64_t n = args.x.elements();
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < n; ++i) {
        y[i] = static_cast<Y>(static_cast<float>(x[i]));
      }
    });
  });
}

}  // namespace longtune::ops
