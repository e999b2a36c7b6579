#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longtune {

struct SamplerOptions {
  double temperature = 0;  ///< 0: greedy, the token of the largest logit
  std::int64_t top_k = 0;  ///< only the k likeliest tokens; 0: all
  double top_p = 1;        ///< only the fewest likeliest tokens whose probabilities sum to p
  std::uint64_t seed = 0;
};

/// Draws the next token from logits on the host:
///
///     p[v] = exp((logits[v] - max) / temperature) / sum
///
/// First top-k keeps the k largest, then top-p, over what is left and normalised anew, the shortest
/// run of the largest whose sum reaches p (at least one token). Of equal logits the lower id is the
/// larger. Sums run in f64, from the likeliest on, so that what is drawn depends on the seed, the
/// position and the logits alone.
class Sampler {
 public:
  /// Throws Error kInvalidArgument where temperature is negative or not finite, top_k negative, or
  /// top_p outside (0, 1].
  explicit Sampler(const SamplerOptions& options);

  /// The token that follows `position`. Logits of -infinity are never drawn. Throws Error
  /// kBadInput where a logit is NaN or +infinity, or none is finite: the model is at fault.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits, std::int64_t position);

 private:
  struct Candidate {
    float logit = 0;
    std::int32_t token = 0;
  };

  void gather(std::span<const float> logits);
  void keep_top_k();
  void weigh_and_keep_top_p();

  SamplerOptions options_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;  ///< of candidates_, not normalised
};

}  // namespace longtune
