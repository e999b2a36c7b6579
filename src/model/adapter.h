#pragma once

#include <array>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/host_memory.h"
#include "model/config.h"
#include "ops/optimizer.h"

namespace longtune {

/// The linear layers of a decoder block.
enum class LinearKind : std::uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown };
constexpr int kLinearKinds = 7;

/// "q_proj", ... "down_proj".
[[nodiscard]] const char* name_of(LinearKind kind);

/// "self_attn.q_proj", ... "mlp.down_proj".
[[nodiscard]] const char* module_of(LinearKind kind);

struct LinearShape {
  std::int64_t N = 0;  ///< output features
  std::int64_t K = 0;  ///< input features
};

[[nodiscard]] LinearShape linear_shape(const ModelConfig& config, LinearKind kind);

/// LoRA (arXiv:2106.09685) on some of the linear layers, of all decoder blocks alike.
struct LoraConfig {
  std::int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  bool rslora = false;  ///< scale alpha / sqrt(rank) instead of alpha / rank (arXiv:2312.03732)
  std::array<bool, kLinearKinds> targets{true, true, true, true, true, true, true};

  [[nodiscard]] float scale() const;

  [[nodiscard]] bool has(LinearKind kind) const { return targets[static_cast<int>(kind)]; }
};

/// Throws Error kInvalidArgument, naming the option, where rank is outside [1, 4096], alpha outside
/// (0, 10^6], dropout outside [0, 1), or nothing is targeted.
void check(const LoraConfig& config);

/// An adapter's parameters on the device. All of one sort lie in one flat f32 tensor, so that the
/// optimiser and the norm see one array; layers see parts of it.
class Adapter {
 public:
  /// Takes the memory to read with it; values are zero until one of `initialise` and
  /// `load_adapter`.
  Adapter(const ModelConfig& model, const LoraConfig& lora, Arena& arena);

  /// The same to train it, with gradients, and with AdamW's moments in `moments`: on the device or
  /// in host memory.
  Adapter(const ModelConfig& model, const LoraConfig& lora, Tier moments, Arena& arena, Plan& plan);

  /// The pair of one layer and kind; without data where not targeted.
  struct Pair {
    TensorView a;   ///< (R, K)
    TensorView b;   ///< (N, R)
    TensorView da;  ///< training only
    TensorView db;
  };

  [[nodiscard]] const Pair& pair(std::int64_t layer, LinearKind kind) const {
    return pairs_[layer * kLinearKinds + static_cast<int>(kind)];
  }

  /// A uniform in +-1/sqrt(K), B zero: PEFT's default, from `seed`.
  void initialise(std::uint64_t seed);

  [[nodiscard]] const LoraConfig& config() const { return lora_; }

  [[nodiscard]] const ModelConfig& model() const { return model_; }

  // Flat tensors of `parameters()` values.
  [[nodiscard]] std::int64_t parameters() const { return params_.elements(); }

  [[nodiscard]] const TensorView& params() const { return params_; }

  [[nodiscard]] const TensorView& gradients() const { return gradients_; }  ///< training only

  /// For copies alone where they are in host memory.
  [[nodiscard]] const TensorView& first_moments() const { return m_; }  ///< training only

  [[nodiscard]] const TensorView& second_moments() const { return v_; }  ///< training only

  /// A step of AdamW on all parameters; of `step`, the tensors are filled in here.
  void update(ops::AdamW step) const;

 private:
  void make_pairs();

  ModelConfig model_;
  LoraConfig lora_;
  std::vector<Pair> pairs_;  ///< (L, kLinearKinds)
  TensorView params_;
  TensorView gradients_;
  TensorView m_;
  TensorView v_;
  HostMemory host_moments_;  ///< m and v, where they are there
  TensorView moments_part_;  ///< (2, part), what of them is on the device, likewise
};

/// Writes `adapter_model.safetensors` and `adapter_config.json` in PEFT's format and names into
/// `directory`, which exists. `base_model` is what adapter_config names as the base. Streams: host
/// memory stays small.
void save_adapter(const Adapter& adapter,
                  const std::filesystem::path& directory,
                  const std::string& base_model);

/// Reads the configuration of a PEFT adapter. Throws Error: kBadInput where malformed,
/// kUnsupported, by name, for what longtune does not do: other kinds than LoRA, biases, other
/// targets, ways to begin that change the base (PiSSA and the like), and any other setting in use
/// that is not known to change nothing.
[[nodiscard]] LoraConfig read_lora_config(const std::filesystem::path& directory);

/// The same from the text of adapter_config.json, parsed; `file` is what messages call it.
[[nodiscard]] LoraConfig parse_lora_config(const nlohmann::json& json, const std::string& file);

/// Fills `adapter` from a directory that PEFT or save_adapter wrote. Throws Error kBadInput, naming
/// the tensor, where one is missing, left over, or has another shape than the model needs.
void load_adapter(Adapter& adapter, const std::filesystem::path& directory);

}  // namespace longtune
