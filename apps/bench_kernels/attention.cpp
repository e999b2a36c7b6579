#include "ops/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/operands.h"
#include "base/random.h"

namespace longtune::bench {
namespace {

struct Shape {
  std::int64_t T = 0;
  std::int64_t first_position = 0;
  std::int64_t Hq = 0;
  std::int64_t Hkv = 0;
  std::int64_t D = 0;
  std::int64_t live_begin = 0;
  std::int64_t groups = 0;     ///< listed for each block of 16 queries; 0: dense
  DType dtype = DType::kBf16;  ///< of activations and pages

  [[nodiscard]] std::int64_t tokens() const { return first_position + T; }

  [[nodiscard]] std::int64_t live() const { return tokens() - live_begin; }

  [[nodiscard]] std::int64_t queries() const { return T * Hq * D; }

  [[nodiscard]] std::int64_t pages() const {
    return (tokens() + ops::kPageTokens - 1) / ops::kPageTokens;
  }

  [[nodiscard]] float scale() const { return 1 / std::sqrt(static_cast<float>(D)); }

  [[nodiscard]] std::string text() const;
  [[nodiscard]] double product(std::int64_t first_key) const;
};

// As HGA selects: two pages of sinks, two of window, the own page.
constexpr std::int64_t kSinkPages = 2;
constexpr std::int64_t kWindowPages = 2;
constexpr std::int64_t kGroupTokens = 16;

std::string Shape::text() const {
  std::string text = fmt::format("{} T {} H {}/{} D {}", name_of(dtype), T, Hq, Hkv, D);
  if (groups > 0) {
    const std::int64_t most =
        (kSinkPages + kWindowPages) * ops::kPageTokens + groups * kGroupTokens;
    return text + fmt::format(" keys {} to {} by groups", most + 1, most + ops::kPageTokens);
  }
  text += fmt::format(" keys {}", tokens());
  return live_begin == 0 ? text : text + fmt::format(", {} live", live());
}

/// Operations of one product over the pairs of query and key: those that causality leaves, or, with
/// groups, those of the tiles that a block of queries gathers.
double Shape::product(std::int64_t first_key) const {
  double pairs = 0;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t position = first_position + t;
    if (groups == 0) {
      pairs += static_cast<double>(position + 1 - first_key);
    } else {
      const std::int64_t own = position % ops::kPageTokens + 1;
      const std::int64_t earlier =
          (kSinkPages + kWindowPages) * ops::kPageTokens + kGroupTokens * groups;
      pairs += static_cast<double>(own + (first_key == 0 ? earlier : 0));
    }
  }
  return 2.0 * pairs * static_cast<double>(Hq * D);
}

/// Groups spread over the history, as a router would list them; each query sees about half.
class Lists {
 public:
  explicit Lists(const Shape& s) {
    if (s.groups == 0) {
      return;
    }
    selection_ = {.first_pages = kSinkPages,
                  .last_pages = kWindowPages,
                  .group_tokens = kGroupTokens,
                  .capacity = s.groups,
                  .lists = s.Hkv};
    const std::int64_t lists = selection_.blocks(s.first_position, s.T) * s.Hkv;
    const std::int64_t of_page = ops::kPageTokens / kGroupTokens;
    const std::int64_t candidates =
        (s.first_position / ops::kPageTokens - kSinkPages - kWindowPages) * of_page;
    counts_.assign(static_cast<std::size_t>(lists), static_cast<std::int32_t>(s.groups));
    for (std::int64_t i = 0; i < lists * s.groups; ++i) {
      const std::int64_t step = (i * candidates / s.groups + i / s.groups) % candidates;
      groups_.push_back(static_cast<std::int32_t>(kSinkPages * of_page + step));
    }
    for (std::int64_t i = 0; i < s.T * s.Hkv * selection_.words(); ++i) {
      seen_.push_back(random_bits(11, i));
    }
  }

  [[nodiscard]] ops::Selection selection() const {
    ops::Selection result = selection_;
    result.groups = groups_.data();
    result.counts = counts_.data();
    result.seen = seen_.data();
    return result;
  }

 private:
  ops::Selection selection_;
  std::vector<std::int32_t> groups_, counts_;
  std::vector<std::uint64_t> seen_;
};

/// What the forward pass and the column sums take.
class Reading {
 public:
  explicit Reading(const Shape& s)
      : s_(s),
        q_(s.dtype, s.queries(), 1),
        out_(s.dtype, s.queries(), 2),
        lse_(DType::kF32, s.Hq * s.T, 3),
        sums_(DType::kF32, s.tokens() * s.Hkv, 4),
        store_(s.dtype, s.pages() * page_bytes() / size_of(s.dtype), 5),
        lists_(s) {}

  void forward() {
    const std::vector<std::byte*> table = pages();
    ops::attention_forward({.out = out_.shaped({s_.T, s_.Hq, s_.D}),
                            .lse = lse_.shaped({s_.T, s_.Hq}),
                            .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                            .kv = kv(table),
                            .first_position = s_.first_position,
                            .scale = s_.scale(),
                            .selection = lists_.selection()});
  }

  void column_sums() {
    const std::vector<std::byte*> table = pages();
    ops::attention_column_sums({.sums = sums_.shaped({s_.Hkv, s_.tokens()}),
                                .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                                .lse = lse_.shaped({s_.T, s_.Hq}),
                                .kv = kv(table),
                                .first_position = s_.first_position,
                                .scale = s_.scale(),
                                .end_row = s_.T});
  }

 protected:
  [[nodiscard]] std::int64_t page_bytes() const {
    return ops::kv_page_bytes(s_.Hkv, s_.D, s_.dtype);
  }

  /// Made anew for each run, so that copies need no table of their own.
  [[nodiscard]] std::vector<std::byte*> pages() {
    std::vector<std::byte*> table;
    for (std::int64_t page = 0; page < s_.pages(); ++page) {
      table.push_back(store_.data() + page * page_bytes());
    }
    return table;
  }

  [[nodiscard]] ops::KvPages kv(const std::vector<std::byte*>& table) const {
    return {
        .pages = table.data(), .tokens = s_.tokens(), .Hkv = s_.Hkv, .D = s_.D, .dtype = s_.dtype};
  }

  Shape s_;
  Values q_, out_, lse_, sums_, store_;
  Lists lists_;
};

/// What the backward pass takes.
class Training : public Reading {
 public:
  explicit Training(const Shape& s)
      : Reading(s),
        dout_(s.dtype, s.queries(), 6),
        dq_(s.dtype, s.queries(), 7),
        delta_(DType::kF32, s.Hq * s.T, 8),
        dk_(DType::kF32, s.live() * s.Hkv * s.D, 9),
        dv_(DType::kF32, s.live() * s.Hkv * s.D, 10),
        group_dk_(DType::kF32, s.live() * s.Hkv * s.D, 11),
        group_dv_(DType::kF32, s.live() * s.Hkv * s.D, 12) {
    forward();  // the backward pass relies on its sums
  }

  void backward() {
    const std::vector<std::byte*> table = pages();
    ops::attention_backward({.dq = dq_.shaped({s_.T, s_.Hq, s_.D}),
                             .dk = dk_.shaped({s_.live(), s_.Hkv, s_.D}),
                             .dv = dv_.shaped({s_.live(), s_.Hkv, s_.D}),
                             .delta = delta_.shaped({s_.T, s_.Hq}),
                             .group_dk = group_dk_.shaped({s_.live(), s_.Hkv, s_.D}),
                             .group_dv = group_dv_.shaped({s_.live(), s_.Hkv, s_.D}),
                             .dout = dout_.shaped({s_.T, s_.Hq, s_.D}),
                             .out = out_.shaped({s_.T, s_.Hq, s_.D}),
                             .lse = lse_.shaped({s_.T, s_.Hq}),
                             .q = q_.shaped({s_.T, s_.Hq, s_.D}),
                             .kv = kv(table),
                             .first_position = s_.first_position,
                             .live_begin = s_.live_begin,
                             .scale = s_.scale(),
                             .selection = lists_.selection()});
  }

 private:
  Values dout_, dq_, delta_, dk_, dv_, group_dk_, group_dv_;
};

/// Five products over live keys and three over detached ones.
void add_backward(Kernels& kernels, const Shape& s) {
  kernels.push_back(
      {.name = "attention_backward",
       .shape = s.text(),
       .flops = 3 * s.product(0) + 2 * s.product(s.live_begin),
       .prepare = on_copies([s] { return Training(s); }, [](Training& o) { o.backward(); })});
}

/// Two products forward, one for the sums.
void add_passes(Kernels& kernels, const Shape& s) {
  const auto read = [s] { return Reading(s); };
  kernels.push_back({.name = "attention_forward",
                     .shape = s.text(),
                     .flops = 2 * s.product(0),
                     .prepare = on_copies(read, [](Reading& o) { o.forward(); })});
  if (s.groups == 0) {
    kernels.push_back({.name = "attention_column_sums",
                       .shape = s.text(),
                       .flops = s.product(0),
                       .prepare = on_copies(read, [](Reading& o) { o.column_sums(); })});
  }
  add_backward(kernels, s);
}

/// One query: the keys and values are read once.
void add_decoding(
    Kernels& kernels, std::int64_t keys, std::int64_t Hq, std::int64_t Hkv, std::int64_t D) {
  const Shape s{.T = 1, .first_position = keys - 1, .Hq = Hq, .Hkv = Hkv, .D = D};
  kernels.push_back(
      {.name = "attention_forward",
       .shape = s.text(),
       .bytes = static_cast<double>(2 * keys * Hkv * D * size_of(s.dtype)),
       .prepare = on_copies([s] { return Reading(s); }, [](Reading& o) { o.forward(); })});
}

}  // namespace

void add_attention_kernels(Kernels& kernels) {
  for (const std::int64_t D : {64, 128}) {
    add_passes(kernels, {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = D});
    add_backward(kernels,
                 {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = D, .live_begin = 1984});
    add_passes(kernels,
               {.T = 64,
                .first_position = 2048,
                .Hq = 8,
                .Hkv = 2,
                .D = D,
                .live_begin = 2048,
                .groups = 53});
  }
  add_passes(kernels,
             {.T = 64, .first_position = 1984, .Hq = 8, .Hkv = 2, .D = 64, .dtype = DType::kF32});
  for (const std::int64_t T : {512, 2048}) {
    add_passes(kernels, {.T = T, .Hq = 9, .Hkv = 3, .D = 64});
  }
  for (const std::int64_t keys : {512, 2048, 8000}) {
    add_decoding(kernels, keys, 9, 3, 64);
    add_decoding(kernels, keys, 32, 8, 128);
  }
}

}  // namespace longtune::bench
