#include "model/adapter.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "base/random.h"
#include "device/arena.h"

namespace longtune {
namespace {

struct KindNames {
  const char* name;
  const char* module;
};

constexpr std::array<KindNames, kLinearKinds> kKindNames{{{"q_proj", "self_attn.q_proj"},
                                                          {"k_proj", "self_attn.k_proj"},
                                                          {"v_proj", "self_attn.v_proj"},
                                                          {"o_proj", "self_attn.o_proj"},
                                                          {"gate_proj", "mlp.gate_proj"},
                                                          {"up_proj", "mlp.up_proj"},
                                                          {"down_proj", "mlp.down_proj"}}};

// A part of a flat tensor, as a matrix.
TensorView part(const TensorView& flat, std::int64_t offset, std::int64_t rows, std::int64_t cols) {
  if (!flat) {
    return {};
  }
  return flat.rows(offset, rows * cols).reshaped({rows, cols});
}

constexpr const char* kMoments = "optimizer moments";
constexpr std::int64_t kPart = kMiB;  // values on the device at a time

std::int64_t parameters_of(const ModelConfig& model, const LoraConfig& lora) {
  std::int64_t values = 0;
  for (int kind = 0; kind < kLinearKinds; ++kind) {
    const LinearShape shape = linear_shape(model, static_cast<LinearKind>(kind));
    values += lora.targets[kind] ? model.L * lora.rank * (shape.N + shape.K) : 0;
  }
  return values;
}

}  // namespace

const char* name_of(LinearKind kind) {
  return kKindNames.at(static_cast<int>(kind)).name;
}

const char* module_of(LinearKind kind) {
  return kKindNames.at(static_cast<int>(kind)).module;
}

LinearShape linear_shape(const ModelConfig& config, LinearKind kind) {
  const std::int64_t queries = config.Hq * config.D;
  const std::int64_t keys = config.Hkv * config.D;
  switch (kind) {
    case LinearKind::kQ:
      return {.N = queries, .K = config.C};
    case LinearKind::kK:
    case LinearKind::kV:
      return {.N = keys, .K = config.C};
    case LinearKind::kO:
      return {.N = config.C, .K = queries};
    case LinearKind::kGate:
    case LinearKind::kUp:
      return {.N = config.F, .K = config.C};
    case LinearKind::kDown:
      return {.N = config.C, .K = config.F};
  }
  fail(ErrorCode::kInternal, "model", "unknown linear layer {}", static_cast<int>(kind));
}

float LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return static_cast<float>(alpha / (rslora ? std::sqrt(r) : r));
}

void check(const LoraConfig& config) {
  constexpr std::int64_t kMaxRank = 4096;
  constexpr double kMaxAlpha = 1e6;
  if (config.rank < 1 || config.rank > kMaxRank) {
    fail(ErrorCode::kInvalidArgument,
         "lora",
         "--lora-rank {} is not between 1 and {}",
         config.rank,
         kMaxRank);
  }
  if (!(config.alpha > 0 && config.alpha <= kMaxAlpha)) {
    fail(ErrorCode::kInvalidArgument,
         "lora",
         "--lora-alpha {} is not above 0 and at most {:.0f}",
         config.alpha,
         kMaxAlpha);
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    fail(ErrorCode::kInvalidArgument, "lora", "--lora-dropout {} is not in [0, 1)", config.dropout);
  }
  if (std::ranges::none_of(config.targets, [](bool target) { return target; })) {
    fail(ErrorCode::kInvalidArgument, "lora", "--lora-targets names no layer");
  }
}

Adapter::Adapter(const ModelConfig& model, const LoraConfig& lora, Arena& arena)
    : model_(model), lora_(lora), pairs_(model.L * kLinearKinds) {
  check(lora);
  params_ = arena.take("adapter", DType::kF32, {parameters_of(model, lora)});
  make_pairs();
}

Adapter::Adapter(
    const ModelConfig& model, const LoraConfig& lora, Tier moments, Arena& arena, Plan& plan)
    : Adapter(model, lora, arena) {
  const std::int64_t values = parameters();
  gradients_ = arena.take("adapter gradients", DType::kF32, {values});
  make_pairs();
  if (moments == Tier::kDevice) {
    m_ = arena.take(kMoments, DType::kF32, {values});
    v_ = arena.take(kMoments, DType::kF32, {values});
    return;
  }
  moments_part_ = arena.take(kMoments, DType::kF32, {2, std::min(values, kPart)});
  host_moments_ = HostMemory(kMoments, 2 * params_.bytes(), arena, plan);
  m_ = params_;
  v_ = params_;
  m_.data = host_moments_.data();
  v_.data = host_moments_.data() == nullptr ? nullptr : m_.data + params_.bytes();
}

void Adapter::make_pairs() {
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < model_.L * kLinearKinds; ++i) {
    const auto kind = static_cast<LinearKind>(i % kLinearKinds);
    if (!lora_.has(kind)) {
      continue;
    }
    const LinearShape shape = linear_shape(model_, kind);
    const std::int64_t a_values = lora_.rank * shape.K;
    pairs_[i] = {.a = part(params_, offset, lora_.rank, shape.K),
                 .b = part(params_, offset + a_values, shape.N, lora_.rank),
                 .da = part(gradients_, offset, lora_.rank, shape.K),
                 .db = part(gradients_, offset + a_values, shape.N, lora_.rank)};
    offset += a_values + shape.N * lora_.rank;
  }
}

void Adapter::initialise(std::uint64_t seed) {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    if (!pair.a) {
      continue;
    }
    // kaiming_uniform with a = sqrt(5), PEFT's choice, is uniform in +-1/sqrt(K).
    const double bound = 1 / std::sqrt(static_cast<double>(pair.a.dim(1)));
    const std::uint64_t key = random_key(seed, i);
    std::vector<float> a(pair.a.elements());
    for (std::size_t j = 0; j < a.size(); ++j) {
      a[j] = static_cast<float>((2 * random_uniform(key, j) - 1) * bound);
    }
    copy_to_device(pair.a, a.data(), pair.a.bytes());
    fill_zero(pair.b);
  }
}

}  // namespace longtune
