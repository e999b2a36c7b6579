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
  std::int64_t groups = 0;     ///< listed for each block of 16 queries; 0: dense
};

/// Sinks, window and groups spread over the history, as a router would list them; each query sees
/// about half of the groups.
class Lists {
 public:
  explicit Lists(const Shape& s) {
    if (s.groups == 0) {
      return;
    }
    selection_ = {.first_pages = 2, .last_pages = 2, .capacity = s.groups, .lists = s.Hkv};
    const std::int64_t lists = selection_.blocks(s.first_position, s.T) * s.Hkv;
    const std::int64_t candidates = (s.first_position / ops::kPageTokens - 4) * 4;
    counts_.assign(static_cast<std::size_t>(lists), static_cast<std::int32_t>(s.groups));
    for (std::int64_t i = 0; i < lists * s.groups; ++i) {
      const std::int64_t step = (i * candidates / s.groups + i / s.groups) % candidates;
      groups_.push_back(static_cast<std::int32_t>(8 + step));
    }
    for (std::int64_t i = 0; i < s.T * s.Hkv * selection_.words(); ++i) {
      seen_.push_back(random_bits(11, i));
    }
    selection_.groups = groups_.data();
    selection_.counts = counts_.data();
    selection_.seen = seen_.data();
  }

  [[nodiscard]] const ops::Selection& selection() const { return selection_; }

 private:
  ops::Selection selection_;
  std::vector<std::int32_t> groups_, counts_;
  std::vector<std::uint64_t> seen_;
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
        lse_(DType::kF32, s.Hq * s.T, 6),
        delta_(DType::kF32, s.Hq * s.T, 7),
        dk_(DType::kF32, live() * s.Hkv * s.D, 8),
        dv_(DType::kF32, live() * s.Hkv * s.D, 9),
        sums_(DType::kF32, tokens() * s.Hkv, 12),
        group_dk_(DType::kF32, live() * s.Hkv * s.D, 8),
        group_dv_(DType::kF32, live() * s.Hkv * s.D, 9),
        lists_(s),
        store_(s.dtype, pages() * page_bytes() / size_of(s.dtype), 10) {
    for (std::int64_t p = 0; p < pages(); ++p) {
      table_.push_back(store_.data() + p * page_bytes());
    }
  }

  void forward() {
    ops::attention_forward({.out = out_.shaped({s_.T, s_.Hq, s_.D}),
                            .lse = lse_.shaped({s_.T, s_.Hq}),
                            .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                            .kv = kv(),
                            .first_position = s_.first_position,
                            .scale = scale(),
                            .selection = lists_.selection()});
  }

  void column_sums() {
    ops::attention_column_sums({.sums = sums_.shaped({s_.Hkv, tokens()}),
                                .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                                .lse = lse_.shaped({s_.T, s_.Hq}),
                                .kv = kv(),
                                .first_position = s_.first_position,
                                .scale = scale(),
                                .end_row = s_.T});
  }

  void backward() {
    ops::attention_backward({.dq = dq_.shaped({s_.T, s_.Hq, s_.D}),
                             .dk = dk_.shaped({live(), s_.Hkv, s_.D}),
                             .dv = dv_.shaped({live(), s_.Hkv, s_.D}),
                             .delta = delta_.shaped({s_.T, s_.Hq}),
                             .group_dk = group_dk_.shaped({live(), s_.Hkv, s_.D}),
                             .group_dv = group_dv_.shaped({live(), s_.Hkv, s_.D}),
                             .dout = dout_.shaped({s_.T, s_.Hq, s_.D}),
                             .out = out_.shaped({s_.T, s_.Hq, s_.D}),
                             .lse = lse_.shaped({s_.T, s_.Hq}),
                             .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                             .kv = kv(),
                             .first_position = s_.first_position,
                             .live_begin = s_.live_begin,
                             .scale = scale(),
                             .selection = lists_.selection()});
  }

  /// Operations of one product over the pairs of query and key: those that causality leaves, or,
  /// with groups, those of the tiles that a block of queries gathers.
  [[nodiscard]] double product(std::int64_t first_key) const {
    double pairs = 0;
    for (std::int64_t t = 0; t < s_.T; ++t) {
      const std::int64_t position = s_.first_position + t;
      if (s_.groups == 0) {
        pairs += static_cast<double>(position + 1 - first_key);
      } else {
        const std::int64_t own = position % ops::kPageTokens + 1;
        pairs +=
            static_cast<double>(own + (first_key == 0 ? 4 * ops::kPageTokens + 16 * s_.groups : 0));
      }
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
  Values q_, dout_, out_, dq_, lse_, delta_, dk_, dv_, sums_, group_dk_, group_dv_;
  Lists lists_;
  Values store_;
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
  fmt::print("{:<9} {:>5} {:>7} {:>3}/{:<3} {:>6} {:>4} {:>5} {:>10.3f} {:>9.1f} {:>7.1f}\n",
             pass,
             s.T,
             s.first_position + s.T,
             s.Hq,
             s.Hkv,
             s.groups,
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
  fmt::print("{:<9} {:>5} {:>7} {:>7} {:>6} {:>4} {:>5} {:>10} {:>9} {:>7}\n",
             "pass",
             "T",
             "keys",
             "heads",
             "groups",
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
           {.T = 64,
           .first_position = 2048,
           .Hq = 8,
           .Hkv = 2,
           .D = 64,
           .live_begin = 2048,
           .groups = 53},
           {.T = 64,
           .first_position = 2048,
           .Hq = 8,
           .Hkv = 2,
           .D = 128,
           .live_begin = 2048,
           .groups = 53},
           {.T = 512, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 2048, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 1, .first_position = 4095, .Hq = 9, .Hkv = 3, .D = 64},
           {.T = 1, .first_position = 4095, .Hq = 32, .Hkv = 8, .D = 128}}) {
    Case c(shape);
    report("forward", shape, best_seconds([&c] { c.forward(); }), c.forward_operations(), peak);
    if (shape.groups == 0) {
      report(
          "sums", shape, best_seconds([&c] { c.column_sums(); }), c.forward_operations() / 2, peak);
    }
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
