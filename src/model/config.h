#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longtune {

/// How rotary frequencies are stretched beyond the trained context.
enum class RopeScaling : std::uint8_t {
  kNone,
  kLinear,  ///< position interpolation (arXiv:2306.15595): all frequencies divided by `factor`
  kLlama3,  ///< Llama 3.1: low frequencies divided, high ones kept, a smooth band between
  kYarn,    ///< YaRN (arXiv:2309.00071)
};

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_context = 0;  ///< llama3, yarn
  double low_freq_factor = 1;   ///< llama3
  double high_freq_factor = 4;  ///< llama3
  double beta_fast = 32;        ///< yarn
  double beta_slow = 1;         ///< yarn
  bool truncate = true;         ///< yarn: whole-number correction range
  double attention_factor = 0;  ///< yarn: 0 means 0.1 ln(factor) + 1 (or from mscale, where given)
};

/// Frequencies (D/2, f32) and the factor on cos and sin, as transformers 5 computes them.
struct RopeFrequencies {
  std::vector<float> frequencies;
  float scale = 1;
};

[[nodiscard]] RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t D);

/// A decoder of the Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU.
struct ModelConfig {
  std::string architecture;  ///< "llama", "mistral", "qwen2", "qwen3"
  std::int64_t L = 0;        ///< layers
  std::int64_t C = 0;        ///< width
  std::int64_t F = 0;        ///< feed-forward width
  std::int64_t Hq = 0;       ///< query heads
  std::int64_t Hkv = 0;      ///< KV heads
  std::int64_t D = 0;        ///< head dimension
  std::int64_t V = 0;        ///< vocabulary: rows of the embedding
  float norm_eps = 1e-6F;
  RopeConfig rope;
  std::int64_t max_context = 0;  ///< tokens the model was made for; 0 where the file does not say
  bool tied_embeddings = false;  ///< the head is the embedding table
  bool qkv_bias = false;         ///< Qwen2
  bool o_bias = false;           ///< Llama with attention_bias
  bool mlp_bias = false;         ///< Llama with mlp_bias
  bool qk_norm = false;          ///< Qwen3
};

/// Throws Error kBadInput, naming the field, where sizes are not positive, Hq is no multiple of
/// Hkv, D is odd, or a size is absurd (any product of two of them past 2^40).
void check(const ModelConfig& config);

}  // namespace longtune
