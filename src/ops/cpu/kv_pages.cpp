#include "ops/kv_pages.h"

namespace longtune::ops::cpu {
namespace {

template <class Stored, class Given>
void write_row(std::byte* tile, std::int64_t slot, const Given* row, std::int64_t D) {
  auto* target = reinterpret_cast<Stored*>(tile) + slot * D;
  for (std::int64_t d = 0; d < D; ++d) {
    target[d] = Stored(static_cast<float>(row[d]));
  }
}

template <class Stored, class Given>
void append(const KvAppend& args) {
  const KvPages& kv = args.kv;
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < args.k.dim(0); ++t) {
    const std::int64_t page = (args.first_position + t) / kPageTokens;
    const std::int64_t slot = (args.first_position + t) % kPageTokens;
    for (std::int64_t h = 0; h < kv.Hkv; ++h) {
      const std::int64_t row = (t * kv.Hkv + h) * kv.D;
      write_row<Stored>(kv.keys(page, h), slot, args.k.as<Given>() + row, kv.D);
      write_row<Stored>(kv.values(page, h), slot, args.v.as<Given>() + row, kv.D);
    }
  }
}

}  // namespace

void kv_append(const KvAppend& args) {
  with_float_type(args.kv.dtype, [&]<class Stored>(Stored*) {
    with_float_type(args.k.dtype, [&]<class Given>(Given*) { append<Stored, Given>(args); });
  });
}

}  // namespace longtune::ops::cpu
