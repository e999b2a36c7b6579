#include "model/decoder.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace longtune {
namespace {

// Tokens whose logits exist at once, in steps that suit the products: weights are unpacked once for
// each tile. Up to 128 MiB, which a layer's workspace mostly has room for.
std::int64_t head_tile(std::int64_t V, std::int64_t T) {
  const std::int64_t fitting = 128 * kMiB / (4 * V) / 32 * 32;
  return std::min(T, std::clamp<std::int64_t>(fitting, 32, 256));
}

std::optional<Adapter> make_adapter(const ModelConfig& config,
                                    const DecoderOptions& options,
                                    Arena& arena,
                                    Plan& plan) {
  if (!options.lora) {
    return std::nullopt;
  }
  if (options.use == ModelUse::kInference) {
    return Adapter(config, *options.lora, arena);
  }
  return Adapter(
      config, *options.lora, options.offload.moments ? Tier::kHost : Tier::kDevice, arena, plan);
}

}  // namespace

struct Decoder::HeadBuffers {
  TensorView normed;  ///< (T, C) after the final norm
  TensorView rstd;    ///< (T)
  TensorView logits;  ///< (tile, V) f32
};

Decoder::Decoder(const ModelSource& source, const DecoderOptions& options, Arena& arena, Plan& plan)
    : config_(with_rope(source.config(), options.model.rope)),
      options_(options),
      cell_capacity_(std::min(options.cell_tokens, options.context)),
      weights_(source, options.model.base, arena, plan),
      adapter_(make_adapter(config_, options, arena, plan)) {
  take_keys_and_values(arena, plan);
  take_buffers(arena, plan);
}

Decoder::~Decoder() = default;

void Decoder::take_keys_and_values(Arena& arena, Plan& plan) {
  const ModelOptions& model = options_.model;
  check(model.attention);
  if (model.attention.is_dense() && !model.kv_tiers) {
    if (model.kv == DType::kI8) {
      fail(ErrorCode::kInvalidArgument,
           "decoder",
           "--kv int8 is for keys and values that leave the device, but dense attention keeps all "
           "of them there: add --kv-host SIZE, or take --attention hga");
    }
    kv_.emplace(KvShape{.L = config_.L,
                        .Hkv = config_.Hkv,
                        .D = config_.D,
                        .dtype = model.kv,
                        .capacity = options_.context,
                        .keep = options_.kv_keep},
                arena);
    return;
  }
  routed_ = std::make_unique<RoutedAttention>(
      RoutedAttention::Shape{.L = config_.L,
                             .Hq = config_.Hq,
                             .Hkv = config_.Hkv,
                             .D = config_.D,
                             .kv = model.kv,
                             .context = options_.context,
                             .cell_tokens = cell_capacity_,
                             .replays = options_.use == ModelUse::kTraining},
      model.attention,
      model.kv_tiers.value_or(KvTiers{}),
      arena,
      plan);
}

void Decoder::take_buffers(Arena& arena, Plan& plan) {
  const std::int64_t T = cell_capacity_;
  const std::int64_t C = config_.C;
  const DType dtype = options_.model.activations;
  const bool training = options_.use == ModelUse::kTraining;
  const LoraConfig* lora = options_.lora ? &*options_.lora : nullptr;
  frequencies_ = arena.take("tables", DType::kF32, {config_.D / 2});
  cos_ = arena.take("tables", DType::kF32, {T, config_.D / 2});
  sin_ = arena.take("tables", DType::kF32, {T, config_.D / 2});
  tokens_ = arena.take("tables", DType::kI32, {T});
  targets_ = arena.take("tables", DType::kI32, {T});
  losses_ = arena.take("tables", DType::kF32, {T});
  inputs_ = arena.take("layer inputs", dtype, {input_slots(), T, C});
  if (keeps_inputs_on_host()) {
    host_inputs_ = HostMemory("layer inputs", config_.L * T * C * size_of(dtype), arena, plan);
  }
  if (training) {
    dx_ = arena.take("layer inputs", dtype, {T, C});
  }
  std::vector<KeptActivations> kept_by;
  LayerKept kept_by_all = LayerKept::kProducts;
  for (std::int64_t layer = 0; layer < config_.L; ++layer) {
    kept_by.emplace_back(config_, lora, dtype, T, kept(layer), arena);
    kept_by_all = std::min(kept_by_all, kept(layer));
  }
  // The head works between the layers' forward and backward passes, so the two share memory.
  {
    const Arena::Scope layers(arena);
    const LayerActivations shared(config_, lora, dtype, T, kept_by_all, arena);
    for (const KeptActivations& own : kept_by) {
      activations_.push_back(shared.with(own));
    }
    if (training) {
      gradients_.emplace(config_, lora, dtype, T, options_.model.attention.kind, arena);
    }
  }
  {
    const Arena::Scope head(arena);
    head_ = std::make_unique<HeadBuffers>();
    head_->normed = arena.take("head workspace", dtype, {T, C});
    head_->rstd = arena.take("head workspace", DType::kF32, {T});
    head_->logits = arena.take("head workspace", DType::kF32, {head_tile(config_.V, T), config_.V});
  }
  arena.keep_high_water();
}

void Decoder::load(const ModelSource& source, const std::function<void(double)>& progress) {
  const RopeFrequencies rope = rope_frequencies(config_.rope, config_.D);
  rope_scale_ = rope.scale;
  copy_to_device(frequencies_, rope.frequencies.data(), frequencies_.bytes());
  if (routed_) {
    routed_->load(rope.frequencies);
  }
  weights_.load(source, progress);
  fingerprint_ = weights_.fingerprint();
  fingerprint_ = hash_bytes(fingerprint_, std::as_bytes(std::span(rope.frequencies)));
  for (const float value : {rope.scale, config_.norm_eps}) {
    fingerprint_ = random_bits(fingerprint_, std::bit_cast<std::uint32_t>(value));
  }
}

TensorView Decoder::layer_input(std::int64_t layer, std::int64_t T) const {
  const std::int64_t slot = layer % input_slots();
  return inputs_.reshaped({inputs_.dim(0) * cell_capacity_, config_.C})
      .rows(slot * cell_capacity_, T);
}

TensorView Decoder::layer_input(std::int64_t layer) const {
  return layer_input(layer, cell_.tokens);
}

bool Decoder::keeps_inputs_on_host() const {
  return options_.use == ModelUse::kTraining && options_.offload.inputs;
}

// Where inputs are not kept, or not here, a layer's output takes the place of the input before.
std::int64_t Decoder::input_slots() const {
  return options_.use == ModelUse::kTraining && !options_.offload.inputs ? config_.L + 1 : 2;
}

std::byte* Decoder::host_input(std::int64_t layer) const {
  return host_inputs_.data() + layer * layer_input(layer, cell_capacity_).bytes();
}

LayerStep Decoder::step(std::int64_t layer) const {
  return {
      .model = &config_,
      .weights = &weights_.layer(layer),
      .adapter = adapter(),
      .layer = layer,
      .cell = cell_,
      .kv = routed_ ? routed_->live(layer) : kv_->layer(layer, cell_.first_position + cell_.tokens),
      .routed = routed_.get(),
      .dropout = options_.lora && dropout_key_ ? options_.lora->dropout : 0,
      .dropout_key = dropout_key_.value_or(0)};
}

LayerKept Decoder::kept(std::int64_t layer) const {
  if (options_.use != ModelUse::kTraining) {
    return LayerKept::kInput;
  }
  if (layer >= config_.L - options_.kept.product_layers) {
    return LayerKept::kProducts;
  }
  return options_.kept.attention ? LayerKept::kAttention : LayerKept::kInput;
}

LayerActivations Decoder::activations(std::int64_t layer) const {
  return activations_[static_cast<std::size_t>(layer)].first(cell_.tokens);
}

void Decoder::forward(std::span<const std::int32_t> tokens,
                      std::int64_t first_position,
                      std::optional<std::uint64_t> dropout_key) {
  const auto T = static_cast<std::int64_t>(tokens.size());
  if (T < 1 || T > cell_capacity_ || first_position < 0 || first_position + T > options_.context) {
    fail(ErrorCode::kInvalidArgument,
         "decoder",
         "{} tokens at position {} do not fit cells of {} tokens in a context of {}",
         T,
         first_position,
         cell_capacity_,
         options_.context);
  }
  if (kv_ && options_.kv_keep == KvKeep::kOneLayer && first_position > 0) {
    fail(ErrorCode::kInternal, "decoder", "keys and values of earlier cells are not kept");
  }
  has_run_ = false;
  const Cell cell{.tokens = T,
                  .first_position = first_position,
                  .cos = cos_.rows(0, T),
                  .sin = sin_.rows(0, T)};
  dropout_key_ = dropout_key;
  copy_to_device(tokens_, tokens.data(), T * 4);
  ops::rope_table({.cos = cos_.rows(0, T),
                   .sin = sin_.rows(0, T),
                   .frequencies = frequencies_,
                   .first_position = first_position,
                   .scale = rope_scale_});
  ops::embedding_forward(
      {.y = layer_input(0, T), .tokens = tokens_.rows(0, T), .table = weights_.embedding()});
  cell_ = cell;
  if (routed_) {
    routed_->begin_cell(first_position, T);
  }
  for (std::int64_t layer = 0; layer < config_.L; ++layer) {
    const TensorView x = layer_input(layer);
    layer_forward(step(layer), x, layer_input(layer + 1), activations(layer));
    if (keeps_inputs_on_host()) {
      copy_to_host(host_input(layer), x, x.bytes());
    }
  }
  has_run_ = true;
}

std::optional<TieredKvStore::Traffic> Decoder::traffic() const {
  return routed_ ? std::optional(routed_->traffic()) : std::nullopt;
}

void Decoder::require_cell() const {
  if (!has_run_) {
    fail(ErrorCode::kInternal, "decoder", "no cell has run forward");
  }
}

std::vector<float> Decoder::last_logits() {
  require_cell();
  const std::int64_t last = cell_.tokens - 1;
  const TensorView normed = head_->normed.rows(0, 1);
  const TensorView logits = head_->logits.rows(0, 1);
  ops::rms_norm_forward({.y = normed,
                         .rstd = head_->rstd.rows(0, 1),
                         .x = layer_input(config_.L).rows(last, 1),
                         .weight = weights_.final_norm(),
                         .eps = config_.norm_eps});
  ops::linear_forward({.y = logits, .x = normed, .weight = weights_.head()});
  std::vector<float> result(config_.V);
  copy_to_host(result.data(), logits, logits.bytes());
  return result;
}

std::vector<float> Decoder::run_head(std::span<const std::int32_t> targets,
                                     const TensorView& dx,
                                     float grad_scale) {
  require_cell();
  const std::int64_t T = cell_.tokens;
  if (static_cast<std::int64_t>(targets.size()) != T) {
    fail(ErrorCode::kInvalidArgument,
         "decoder",
         "{} targets do not match the {} tokens of the cell",
         targets.size(),
         T);
  }
  copy_to_device(targets_, targets.data(), T * 4);
  ops::rms_norm_forward({.y = head_->normed.rows(0, T),
                         .rstd = head_->rstd.rows(0, T),
                         .x = layer_input(config_.L),
                         .weight = weights_.final_norm(),
                         .eps = config_.norm_eps});
  ops::head_loss({.losses = losses_.rows(0, T),
                  .dx = dx,
                  .logits = head_->logits,
                  .x = head_->normed.rows(0, T),
                  .targets = targets_.rows(0, T),
                  .weight = weights_.head(),
                  .grad_scale = grad_scale});
  std::vector<float> result(T);
  copy_to_host(result.data(), losses_, T * 4);
  return result;
}

std::vector<float> Decoder::losses(std::span<const std::int32_t> targets) {
  return run_head(targets, {}, 0);
}

std::vector<float> Decoder::losses_and_gradients(std::span<const std::int32_t> targets,
                                                 float grad_scale) {
  if (!gradients_) {
    fail(ErrorCode::kInternal, "decoder", "gradients of a decoder that only reads");
  }
  const std::int64_t T = cell_.tokens;
  const TensorView dx = dx_.rows(0, T);
  std::vector<float> result = run_head(targets, dx, grad_scale);
  ops::rms_norm_backward({.dx = dx,
                          .dy = dx,
                          .x = layer_input(config_.L),
                          .rstd = head_->rstd.rows(0, T),
                          .weight = weights_.final_norm()});
  const LayerGradients gradients = gradients_->first(T);
  for (std::int64_t layer = config_.L - 1; layer >= 0; --layer) {
    const LayerStep at = step(layer);
    const LayerActivations buffers = activations(layer);
    const TensorView x = layer_input(layer);
    if (keeps_inputs_on_host()) {
      copy_to_device(x, host_input(layer), x.bytes());
    }
    layer_recompute(at, x, buffers, kept(layer));
    layer_backward(at,
                   x,
                   dx,
                   buffers,
                   gradients,
                   layer > 0 ? LayerGradient::kAll : LayerGradient::kAdapterOnly);
  }
  has_run_ = false;
  return result;
}

Plan plan_decoder(const ModelSource& source, const DecoderOptions& options) {
  Arena arena = Arena::planning();
  Plan host;
  const Decoder decoder(source, options, arena, host);
  Plan plan;
  for (const PurposeBytes& purpose : arena.high_water_purposes()) {
    plan.add(purpose.purpose, Tier::kDevice, purpose.bytes);
  }
  plan.rows.insert(plan.rows.end(), host.rows.begin(), host.rows.end());
  return plan;
}

}  // namespace longtune
