#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "infer/session.h"

namespace longtune {

struct PerplexityOptions {
  std::int64_t context = 2048;  ///< tokens of a window
  std::int64_t stride = 0;      ///< tokens between window starts; 0: the context
  bool keep_losses = false;     ///< of every token, in PerplexityResult::losses
  std::vector<std::int64_t> buckets{0, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
};

/// Throws Error kInvalidArgument where the stride is over the context or the buckets do not ascend
/// from 0.
void check(const PerplexityOptions& options);

struct PerplexityResult {
  struct Bucket {
    std::int64_t from = 0;  ///< position in the window of the token scored, inclusive
    std::int64_t to = 0;    ///< exclusive
    std::int64_t tokens = 0;
    double nats = 0;  ///< mean; 0 where there are no tokens
  };

  struct TokenLoss {
    std::int64_t token = 0;     ///< that was scored, counted from the text's first
    std::int64_t position = 0;  ///< in its window
    float nats = 0;
  };

  std::int64_t tokens = 0;  ///< scored
  double nats = 0;          ///< mean
  double perplexity = 0;    ///< exp(nats)
  std::vector<Bucket> buckets;
  std::vector<TokenLoss> losses;  ///< of every token scored, in order, where they are kept
};

/// Windows of `context` tokens start every `stride` tokens; a window scores those of its tokens,
/// from its second on, that no earlier window scored. `progress` gets the share done; what it
/// throws ends the evaluation.
[[nodiscard]] PerplexityResult perplexity(Session& session,
                                          const std::vector<std::int32_t>& tokens,
                                          const PerplexityOptions& options,
                                          const std::function<void(double)>& progress);

}  // namespace longtune
