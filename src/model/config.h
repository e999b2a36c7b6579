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
  double attention_factor = 0;  ///< yarn: 0 means 0.1 ln(factor) + 1; readers put mscale's here
  /// (D/2) or none, with kNone only: each frequency is divided by its own. GGUF files of Llama 3.1
  /// hold its scaling in this form (rope_freqs.weight).
  std::vector<float> divisors;
};

/// Frequencies (D/2, f32) and the factor on cos and sin, as transformers 5 computes them.
struct RopeFrequencies {
  std::vector<float> frequencies;
  float scale = 1;
};

/// Sums and products in f32, in the order of transformers; powers may differ from its vectorised
/// ones in the last bit. `rope` has passed check().
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

/// Throws Error kBadInput, naming the field, where a size is not from 1 to 2^20 (so that the
/// product of any two is at most 2^40), there are more than 16,384 layers, Hq is no multiple of
/// Hkv, D is odd, or the norm's epsilon or a RoPE parameter is out of its range. `file`: where the
/// configuration comes from, for the message.
void check(const ModelConfig& config, const std::string& file = "configuration");

}  // namespace longtune
