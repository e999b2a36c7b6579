// bench_attention: time and share of the machine's measured peak of attention's two passes, for the
// kernels alone. Shapes are blocks of queries over a long history, and whole sequences.

#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "device/peak.h"
#include "ops/cpu/isa.h"

namespace longtune {
namespace {

struct Shape {
  std::int64_t T = 0;
  std::int64_t first_position = 0;
  std::int64_t Hq = 0;
  std::int64_t Hkv = 0;
  std::int64_t D = 0;
  std::int64_t live_begin = 0;
  DType dtype = DType::kBf16;  ///< of activations and pages
};

// A buffer of random values between -1 and 1 in `dtype`.
class Values {
 public:
  Values(DType dtype, std::int64_t count, std::uint64_t seed)
      : memory_(static_cast<std::size_t>(count * size_of(dtype))), dtype_(dtype) {
    with_float_type(dtype, [&]<class Float>(Float*) {
      auto* values = reinterpret_cast<Float*>(memory_.data());
      for (std::int64_t i = 0; i < count; ++i) {
        values[i] = Float(static_cast<float>(2 * random_uniform(seed, i) - 1));
      }
    });
  }

  [[nodiscard]] TensorView shaped(std::initializer_list<std::int64_t> shape) {
    TensorView result{.data = memory_.data(), .dtype = dtype_};
    return result.reshaped(shape);
  }

  [[nodiscard]] std::byte* data() { return memory_.data(); }

 private:
  std::vector<std::byte> memory_;
  DType dtype_;
};

class Case {
 public:
  explicit Case(const Shape& s)
      : s_(s),
        q_(s.dtype, queries(), 1),
        dout_(s.dtype, queries(), 2),
        out_(s.dtype, queries(), 3),
        dq_(s.dtype, queries(), 4),
        dq_sum_(DType::kF32, queries(), 5),
        lse_(DType::kF32, s.Hq * s.T, 6),
        delta_(DType::kF32, s.Hq * s.T, 7),
        dk_(DType::kF32, live() * s.Hkv * s.D, 8),
        dv_(DType::kF32, live() * s.Hkv * s.D, 9),
        store_(s.dtype, pages() * page_bytes() / size_of(s.dtype), 10) {
    for (std::int64_t p = 0; p < pages(); ++p) {
      table_.push_back(store_.data() + p * page_bytes());
    }
  }

  void forward() {
    ops::attention_forward({.out = out_.shaped({s_.T, s_.Hq, s_.D}),
                            .lse = lse_.shaped({s_.Hq, s_.T}),
                            .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                            .kv = kv(),
                            .first_position = s_.first_position,
                            .scale = scale()});
  }

  void backward() {
    ops::attention_backward({.dq = dq_.shaped({s_.T, s_.Hq, s_.D}),
                             .dk = dk_.shaped({live(), s_.Hkv, s_.D}),
                             .dv = dv_.shaped({live(), s_.Hkv, s_.D}),
                             .delta = delta_.shaped({s_.Hq, s_.T}),
                             .dq_sum = dq_sum_.shaped({s_.T, s_.Hq, s_.D}),
                             .dout = dout_.shaped({s_.T, s_.Hq, s_.D}),
                             .out = out_.shaped({s_.T, s_.Hq, s_.D}),
                             .lse = lse_.shaped({s_.Hq, s_.T}),
                             .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                             .kv = kv(),
                             .first_position = s_.first_position,
                             .live_begin = s_.live_begin,
                             .scale = scale()});
  }

  /// Operations of one product over the pairs of query and key that causality leaves.
  [[nodiscard]] double product(std::int64_t first_key) const {
    double pairs = 0;
    for (std::int64_t t = 0; t < s_.T; ++t) {
      pairs += static_cast<double>(s_.first_position + t + 1 - first_key);
    }
    return 2.0 * pairs * static_cast<double>(s_.Hq * s_.D);
  }

  /// Two products forward; backward five over live keys and three over detached ones.
  [[nodiscard]] double forward_operations() const { return 2 * product(0); }

  [[nodiscard]] double backward_operations() const {
    return 3 * product(0) + 2 * product(s_.live_begin);
  }

 private:
  [[nodiscard]] std::int64_t queries() const { return s_.T * s_.Hq * s_.D; }

  [[nodiscard]] std::int64_t tokens() const { return s_.first_position + s_.T; }

  [[nodiscard]] std::int64_t live() const { return tokens() - s_.live_begin; }

  [[nodiscard]] std::int64_t pages() const {
    return (tokens() + ops::kPageTokens - 1) / ops::kPageTokens;
  }

  [[nodiscard]] std::int64_t page_bytes() const {
    return ops::kv_page_bytes(s_.Hkv, s_.D, s_.dtype);
  }

  [[nodiscard]] float scale() const { return 1 / std::sqrt(static_cast<float>(s_.D)); }

  [[nodiscard]] ops::KvPages kv() const {
    return {
        .pages = table_.data(), .tokens = tokens(), .Hkv = s_.Hkv, .D = s_.D, .dtype = s_.dtype};
  }

  Shape s_;
  Values q_, dout_, out_, dq_, dq_sum_, lse_, delta_, dk_, dv_, store_;
  std::vector<std::byte*> table_;
};

/// The fastest of the runs that fit in half a second, at least three: other work only slows.
template <class Run>
double best_seconds(Run run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  const auto begin = Clock::now();
  for (int i = 0; i < 3 || Clock::now() - begin < std::chrono::milliseconds(500); ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void report(const char* pass, const Shape& s, double seconds, double operations, double peak) {
  fmt::print("{:<9} {:>5} {:>7} {:>3}/{:<3} {:>4} {:>5} {:>10.3f} {:>9.1f} {:>7.1f}\n",
             pass,
             s.T,
             s.first_position + s.T,
             s.Hq,
             s.Hkv,
             s.D,
             name_of(s.dtype),
             seconds * 1e3,
             operations / seconds * 1e-9,
             100 * operations / seconds / peak);
}

void run() {
  const double peak = measure_peak_flops();
  fmt::print(
      "{} kernels; measured peak {:.1f} Gflop/s\n", ops::name_of(ops::selected_isa()), peak * 1e-9);
  fmt::print("{:<9} {:>5} {:>7} {:>7} {:>4} {:>5} {:>10} {:>9} {:>7}\n",
             "pass",
             "T",
             "keys",
             "heads",
             "D",
             "dtype",
             "ms",
             "Gflop/s",
             "% peak");
  constexpr DType kF = DType::kF32;
  for (const Shape& shape : std::vector<Shape>{
           {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = 64},
           {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = 64, .dtype = kF},
           {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = 128},
           {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = 128, .live_begin = 1984},
           {.T = 512, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 2048, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 1, .first_position = 4095, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 1, .first_position = 4095, .Hq = 32, .Hkv = 8, .D = 128}}) {
    Case c(shape);
    report("forward", shape, best_seconds([&c] { c.forward(); }), c.forward_operations(), peak);
    report("backward", shape, best_seconds([&c] { c.backward(); }), c.backward_operations(), peak);
  }
}

}  // namespace
}  // namespace longtune

int main() {
  try {
    longtune::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
