#include <fmt/format.h>

#include "apps/bench_kernels/kernel.h"
#include "apps/bench_kernels/operands.h"
#include "ops/embedding.h"
#include "ops/kv_pages.h"
#include "ops/optimizer.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

// Operations that do little with each value. Their shapes are those of SmolLM2-135M; activations
// are bf16.

namespace longtune::bench {
namespace {

constexpr std::int64_t kT = 2048;
constexpr std::int64_t kC = 576;
constexpr std::int64_t kF = 1536;
constexpr std::int64_t kHeads = 9;
constexpr std::int64_t kHeadDimension = 64;
constexpr std::int64_t kAdapters = 4'884'480;  // parameters at rank 16 on all seven matrices
constexpr DType kBf16 = DType::kBf16;
constexpr DType kF32 = DType::kF32;

struct RmsNorm {
  Values x{kBf16, kT*kC, 1}, y{kBf16, kT*kC, 2}, dy{kBf16, kT*kC, 3};
  Values residual{kBf16, kT*kC, 4}, weight{kF32, kC, 5}, rstd{kF32, kT, 6};

  void forward() {
    ops::rms_norm_forward({.y = y.shaped({kT, kC}),
                           .rstd = rstd.shaped({kT}),
                           .x = x.shaped({kT, kC}),
                           .weight = weight.shaped({kC})});
  }

  void backward() {
    ops::rms_norm_backward({.dx = y.shaped({kT, kC}),
                            .dy = dy.shaped({kT, kC}),
                            .x = x.shaped({kT, kC}),
                            .rstd = rstd.shaped({kT}),
                            .weight = weight.shaped({kC}),
                            .residual = residual.shaped({kT, kC})});
  }
};

struct Rope {
  Values x{kBf16, kT* kHeads* kHeadDimension, 1};
  Values cos{kF32, kT*kHeadDimension / 2, 2}, sin{kF32, kT*kHeadDimension / 2, 3};

  void apply() {
    ops::rope_apply({.x = x.shaped({kT, kHeads, kHeadDimension}),
                     .cos = cos.shaped({kT, kHeadDimension / 2}),
                     .sin = sin.shaped({kT, kHeadDimension / 2})});
  }
};

struct Swiglu {
  Values gate{kBf16, kT*kF, 1}, up{kBf16, kT*kF, 2}, y{kBf16, kT*kF, 3};

  void forward() {
    ops::swiglu_forward(
        {.y = y.shaped({kT, kF}), .gate = gate.shaped({kT, kF}), .up = up.shaped({kT, kF})});
  }
};

struct SwigluBackward : Swiglu {
  Values dgate{kBf16, kT*kF, 4}, dup{kBf16, kT*kF, 5};

  void backward() {
    ops::swiglu_backward({.dgate = dgate.shaped({kT, kF}),
                          .dup = dup.shaped({kT, kF}),
                          .dy = y.shaped({kT, kF}),
                          .gate = gate.shaped({kT, kF}),
                          .up = up.shaped({kT, kF})});
  }
};

struct Optimizer {
  Values param{kF32, kAdapters, 1}, m{kF32, kAdapters, 2}, grad{kF32, kAdapters, 3};
  std::vector<float> v = std::vector<float>(kAdapters, 0.5F);

  void step() {
    ops::adamw({.param = param.shaped({kAdapters}),
                .m = m.shaped({kAdapters}),
                .v = view(v, {kAdapters}),
                .grad = grad.shaped({kAdapters}),
                .lr = 1e-4,
                .weight_decay = 0.01});
  }
};

struct Squares {
  Values x{kF32, kAdapters, 1};

  void sum() { (void)ops::sum_of_squares(x.shaped({kAdapters})); }
};

/// Rows all over a table that caches do not hold, other ones at each run. Copies share the table.
struct Embedding {
  static constexpr std::int64_t kV = 151'936;  // Qwen3-0.6B
  static constexpr std::int64_t kWidth = 1024;
  static constexpr std::int64_t kStride = 7919;

  std::shared_ptr<Weight> table = std::make_shared<Weight>(WeightFormat::kQ8_0, kV, kWidth);
  std::shared_ptr<std::int64_t> runs = std::make_shared<std::int64_t>(0);
  Values y{kBf16, kT* kWidth, 1};
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kT);

  void gather() {
    for (std::int32_t& token : tokens) {
      token = static_cast<std::int32_t>((*runs)++ * kStride % kV);
    }
    ops::embedding_forward(
        {.y = y.shaped({kT, kWidth}), .tokens = view(tokens, {kT}), .table = table->view()});
  }
};

struct Append {
  static constexpr std::int64_t kHkv = 3;

  Values k{kBf16, kT*kHkv*kHeadDimension, 1}, v{kBf16, kT*kHkv*kHeadDimension, 2};
  Values store{kBf16, 2 * kT* kHkv* kHeadDimension, 3};

  void append() {
    std::vector<std::byte*> table;
    for (std::int64_t page = 0; page < kT / ops::kPageTokens; ++page) {
      table.push_back(store.data() + page * ops::kv_page_bytes(kHkv, kHeadDimension, kBf16));
    }
    ops::kv_append({.kv = {.pages = table.data(), .Hkv = kHkv, .D = kHeadDimension},
                    .k = k.shaped({kT, kHkv, kHeadDimension}),
                    .v = v.shaped({kT, kHkv, kHeadDimension})});
  }
};

/// A row of an operation that moves `bytes`.
template <class Operands, class RunOne>
void add(Kernels& kernels, const char* name, std::string shape, std::int64_t bytes, RunOne run) {
  kernels.push_back({.name = name,
                     .shape = std::move(shape),
                     .bytes = static_cast<double>(bytes),
                     .prepare = on_copies([] { return Operands(); }, run)});
}

}  // namespace

void add_row_kernels(Kernels& kernels) {
  constexpr std::int64_t kActivation = 2;  // bytes
  const std::string width = fmt::format("T {} C {}", kT, kC);
  const std::string hidden = fmt::format("T {} F {}", kT, kF);
  const std::string heads = fmt::format("T {} H {} D {}", kT, kHeads, kHeadDimension);
  const std::int64_t stream = kT * kC * kActivation;
  const std::int64_t wide = kT * kF * kActivation;
  const std::int64_t row = row_bytes(WeightFormat::kQ8_0, Embedding::kWidth);
  add<RmsNorm>(kernels, "rms_norm_forward", width, 2 * stream, [](RmsNorm& o) { o.forward(); });
  add<RmsNorm>(kernels, "rms_norm_backward", width, 4 * stream, [](RmsNorm& o) { o.backward(); });
  add<Rope>(kernels, "rope_apply", heads, 2 * stream + kT * kHeadDimension * 4, [](Rope& o) {
    o.apply();
  });
  add<Swiglu>(kernels, "swiglu_forward", hidden, 3 * wide, [](Swiglu& o) { o.forward(); });
  add<SwigluBackward>(
      kernels, "swiglu_backward", hidden, 5 * wide, [](SwigluBackward& o) { o.backward(); });
  add<Embedding>(kernels,
                 "embedding_forward",
                 fmt::format("q8_0 T {} V {} C {}", kT, Embedding::kV, Embedding::kWidth),
                 kT * (row + Embedding::kWidth * kActivation),
                 [](Embedding& o) { o.gather(); });
  add<Append>(kernels,
              "kv_append",
              fmt::format("T {} Hkv {} D {}", kT, Append::kHkv, kHeadDimension),
              4 * kT * Append::kHkv * kHeadDimension * kActivation,
              [](Append& o) { o.append(); });
  const std::string parameters = fmt::format("{} parameters", kAdapters);
  add<Optimizer>(kernels, "adamw", parameters, 7 * 4 * kAdapters, [](Optimizer& o) { o.step(); });
  add<Squares>(kernels, "sum_of_squares", parameters, 4 * kAdapters, [](Squares& o) { o.sum(); });
}

}  // namespace longtune::bench
