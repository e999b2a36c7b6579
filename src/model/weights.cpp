#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "quant/nf4.h"
#include "quant/panels.h"

namespace longtune {
namespace {

constexpr const char* kPurpose = "weights";

std::string layer_name(std::int64_t layer, const char* part) {
  return fmt::format("model.layers.{}.{}", layer, part);
}

WeightFormat held_format(WeightFormat file, BaseWeights base) {
  switch (base) {
    case BaseWeights::kFile:
      return file;
    case BaseWeights::kNf4:
      return WeightFormat::kNf4;
    case BaseWeights::kBf16:
      return WeightFormat::kBf16;
    case BaseWeights::kF32:
      return WeightFormat::kF32;
  }
  fail(ErrorCode::kInternal, "weights", "unknown base format");
}

std::int64_t bytes_of(const std::string& name,
                      WeightFormat format,
                      std::int64_t N,
                      std::int64_t K) {
  const auto bytes = weight_bytes(format, N, K);
  if (!bytes) {
    fail(ErrorCode::kUnsupported,
         "weights",
         "{} ({}, {}) cannot be held as {}: {} columns are no multiple of its block of {}",
         name,
         N,
         K,
         name_of(format),
         K,
         block_values(format));
  }
  return *bytes;
}

const SourceTensor& require(const ModelSource& source, const std::string& name) {
  const SourceTensor* tensor = source.find(name);
  if (tensor == nullptr) {
    fail(ErrorCode::kBadInput, "weights", "the model has no tensor {}", name);
  }
  return *tensor;
}

}  // namespace

const char* name_of(BaseWeights base) {
  switch (base) {
    case BaseWeights::kFile:
      return "file";
    case BaseWeights::kNf4:
      return "nf4";
    case BaseWeights::kBf16:
      return "bf16";
    case BaseWeights::kF32:
      return "f32";
  }
  return "?";
}

ModelWeights::ModelWeights(const ModelSource& source, BaseWeights base, Arena& arena, Plan& plan) {
  const ModelConfig& config = source.config();
  // NF4 is for the blocks' linear layers; embedding and head stay as the file has them.
  const BaseWeights outer = base == BaseWeights::kNf4 ? BaseWeights::kFile : base;
  layers_.resize(config.L);
  // Slots point into layers_ and the members, which stay where they are from here on.
  if (config.tied_embeddings) {
    take_matrix(source, "model.embed_tokens.weight", outer, arena, embedding_);
    head_ = embedding_;
  } else {
    take_host_embedding(source, outer, arena.is_planning(), plan);
    take_matrix(source, "lm_head.weight", outer, arena, head_);
  }
  final_norm_ = take_vector(source, "model.norm.weight", arena);
  for (std::int64_t i = 0; i < config.L; ++i) {
    take_layer(source, i, base, arena);
  }
  std::int64_t scales = 0;
  for (const Slot& slot : slots_) {
    if (slot.format == WeightFormat::kNf4) {
      scales = std::max(scales, slot.N * slot.K / block_values(slot.format) * 4);
    }
  }
  plan.add("loading", Tier::kHost, kStagingBytes + scales);
}

void ModelWeights::take_layer(const ModelSource& source,
                              std::int64_t index,
                              BaseWeights base,
                              Arena& arena) {
  const ModelConfig& config = source.config();
  LayerWeights& layer = layers_[index];
  layer.attention_norm = take_vector(source, layer_name(index, "input_layernorm.weight"), arena);
  layer.mlp_norm = take_vector(source, layer_name(index, "post_attention_layernorm.weight"), arena);
  if (config.qk_norm) {
    layer.q_norm = take_vector(source, layer_name(index, "self_attn.q_norm.weight"), arena);
    layer.k_norm = take_vector(source, layer_name(index, "self_attn.k_norm.weight"), arena);
  }
  for (int i = 0; i < kLinearKinds; ++i) {
    const auto kind = static_cast<LinearKind>(i);
    const std::string module = layer_name(index, module_of(kind));
    take_matrix(source, module + ".weight", base, arena, layer.linears[i].weight);
    const std::string bias = module + ".bias";
    if (source.find(bias) != nullptr) {
      layer.linears[i].bias = take_vector(source, bias, arena);
    }
  }
}

void ModelWeights::take_matrix(const ModelSource& source,
                               const std::string& name,
                               BaseWeights base,
                               Arena& arena,
                               WeightView& view) {
  const SourceTensor& tensor = require(source, name);
  const WeightFormat format = held_format(tensor.format, base);
  std::byte* memory = arena.take_bytes(kPurpose, bytes_of(name, format, tensor.N, tensor.K));
  view = weight_view(format, tensor.N, tensor.K, memory);
  slots_.push_back({name, format, memory, &view, tensor.N, tensor.K});
}

void ModelWeights::take_host_embedding(const ModelSource& source,
                                       BaseWeights base,
                                       bool planning,
                                       Plan& plan) {
  const std::string name = "model.embed_tokens.weight";
  const SourceTensor& tensor = require(source, name);
  const WeightFormat format = held_format(tensor.format, base);
  const std::int64_t bytes = bytes_of(name, format, tensor.N, tensor.K);
  plan.add("embedding", Tier::kHost, bytes);
  if (!planning) {
    host_embedding_.resize(bytes);
  }
  embedding_ = weight_view(format, tensor.N, tensor.K, host_embedding_.data());
  slots_.push_back({name, format, host_embedding_.data(), &embedding_, tensor.N, tensor.K});
}

ConstTensorView ModelWeights::take_vector(const ModelSource& source,
                                          const std::string& name,
                                          Arena& arena) {
  const SourceTensor& tensor = require(source, name);
  const TensorView vector = arena.take(kPurpose, DType::kF32, {tensor.K});
  slots_.push_back({name, WeightFormat::kF32, vector.data, nullptr, 1, tensor.K});
  return vector;
}

void ModelWeights::load(const ModelSource& source, const std::function<void(double)>& progress) {
  std::int64_t total = 0;
  for (const Slot& slot : slots_) {
    total += slot.N * slot.K;
  }
  std::int64_t done = 0;
  for (const Slot& slot : slots_) {
    if (source.has_values()) {
      load_slot(source, slot);
      arrange(slot);
    } else {
      fill(slot);
    }
    done += slot.N * slot.K;
    if (progress) {
      progress(static_cast<double>(done) / static_cast<double>(total));
    }
  }
  if (source.config().tied_embeddings) {
    head_ = embedding_;
  }
}

void ModelWeights::load_slot(const ModelSource& source, const Slot& slot) {
  const WeightFormat from = require(source, slot.name).format;
  fingerprint_ = hash_bytes(fingerprint_, std::as_bytes(std::span(slot.name)));
  fingerprint_ = random_bits(fingerprint_, static_cast<std::uint64_t>(from));
  const std::int64_t source_row = row_bytes(from, slot.K);
  // A row is staged as read, as f32 and, where it is held so, as bf16.
  const std::int64_t staged_row = source_row + slot.K * 6;
  const std::int64_t chunk = std::clamp(kStagingBytes / staged_row, std::int64_t{1}, slot.N);
  std::vector<std::byte> staging(chunk * source_row);
  std::vector<float> wide(from == slot.format ? 0 : chunk * slot.K);
  std::vector<BFloat16> narrow(slot.format == WeightFormat::kBf16 ? wide.size() : 0);
  std::optional<Nf4Quantizer> quantizer;
  if (slot.format == WeightFormat::kNf4) {
    quantizer.emplace(slot.N, slot.K, slot.memory);
  }
  // The quantiser knows rows and values; whoever reads its message has a file and a tensor.
  const auto quantize = [&](const auto& step) {
    const OperationScope scope("quantisation");
    try {
      step(*quantizer);
    } catch (const Error& error) {
      const std::string& file = source.file_of(slot.name);
      fail(error.code(), "weights", "{}: tensor {}: {}", file, slot.name, error.what());
    }
  };
  for (std::int64_t first = 0; first < slot.N; first += chunk) {
    const std::int64_t rows = std::min(chunk, slot.N - first);
    const auto read_now = std::span(staging).first(rows * source_row);
    source.read_rows(slot.name, first, rows, read_now);
    fingerprint_ = hash_bytes(fingerprint_, read_now);
    if (from == slot.format) {
      write(slot, first * source_row, staging.data(), rows * source_row);
      continue;
    }
    const WeightView read = weight_view(from, rows, slot.K, staging.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      unpack(read, row, 0, slot.K, wide.data() + row * slot.K);
    }
    if (quantizer) {
      const auto values = std::span(std::as_const(wide)).first(rows * slot.K);
      quantize([&](Nf4Quantizer& to) { to.add_rows(values); });
    } else if (slot.format == WeightFormat::kF32) {
      write(slot, first * slot.K * 4, wide.data(), rows * slot.K * 4);
    } else {
      std::ranges::transform(wide, narrow.begin(), [](float value) { return BFloat16(value); });
      write(slot, first * slot.K * 2, narrow.data(), rows * slot.K * 2);
    }
  }
  if (quantizer) {
    quantize([&](Nf4Quantizer& to) { *slot.matrix = to.finish(); });
  }
}

// Norms get ones, an NF4 matrix values of about 0.02, in panels where it may be, as loading would.
void ModelWeights::fill(const Slot& slot) {
  const OperationScope scope("random weights");
  const std::uint64_t key = hash_bytes(0, std::as_bytes(std::span(slot.name)));
  if (slot.matrix == nullptr) {
    std::fill_n(reinterpret_cast<float*>(slot.memory), slot.K, 1.0F);
    return;
  }
  if (slot.format == WeightFormat::kBf16) {
    auto* values = reinterpret_cast<BFloat16*>(slot.memory);
    for (std::int64_t i = 0; i < slot.N * slot.K; ++i) {
      values[i] = BFloat16(static_cast<float>(0.1 * random_uniform(key, i) - 0.05));
    }
    return;
  }
  const std::int64_t bytes = bytes_of(slot.name, slot.format, slot.N, slot.K);
  for (std::int64_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t bits = random_bits(key, i);
    std::memcpy(slot.memory + i, &bits, sizeof bits);
  }
  WeightView view = weight_view(slot.format, slot.N, slot.K, slot.memory, 0.04F);
  auto* nested = reinterpret_cast<float*>(
      slot.memory + (reinterpret_cast<const std::byte*>(view.nested_absmax) - slot.memory));
  const std::int64_t scales = slot.N * slot.K / kNf4Block;
  std::fill_n(nested, (scales + kNf4NestedBlock - 1) / kNf4NestedBlock, 0.01F);
  view.order = slot.N % kPanelRows == 0 ? WeightOrder::kPanels : WeightOrder::kRows;
  *slot.matrix = view;
}

void ModelWeights::arrange(const Slot& slot) {
  if (slot.matrix != nullptr && slot.memory != host_embedding_.data()) {
    const OperationScope scope("arrangement");
    *slot.matrix = arrange_panels(*slot.matrix, slot.memory);
  }
}

void ModelWeights::write(const Slot& slot,
                         std::int64_t offset,
                         const void* source,
                         std::int64_t bytes) {
  copy_to_device(TensorView{.data = slot.memory + offset}, source, bytes);
}

}  // namespace longtune
