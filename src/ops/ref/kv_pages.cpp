#include "ops/kv_pages.h"

namespace longtune::ops::ref {
namespace {

template <class Stored, class Given>
void append(const KvAppend& args) {
  const KvPages& kv = args.kv;
  for (std::int64_t t = 0; t < args.k.dim(0); ++t) {
    const std::int64_t page = (args.first_position + t) / kPageTokens;
    const std::int64_t slot = (args.first_position + t) % kPageTokens;
    for (std::int64_t h = 0; h < kv.Hkv; ++h) {
      auto* keys = reinterpret_cast<Stored*>(kv.keys(page, h));
      auto* values = reinterpret_cast<Stored*>(kv.values(page, h));
      for (std::int64_t d = 0; d < kv.D; ++d) {
        const std::int64_t source = (t * kv.Hkv + h) * kv.D + d;
        keys[slot * kv.D + d] = Stored(static_cast<float>(args.k.as<Given>()[source]));
        values[slot * kv.D + d] = Stored(static_cast<float>(args.v.as<Given>()[source]));
      }
    }
  }
}

}  // namespace

void kv_append(const KvAppend& args) {
  with_float_type(args.kv.dtype, [&]<class Stored>(Stored*) {
    with_float_type(args.k.dtype, [&]<class Given>(Given*) { append<Stored, Given>(args); });
  });
}

}  // namespace longtune::ops::ref
