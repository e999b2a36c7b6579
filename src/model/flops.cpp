#include "model/flops.h"

#include <algorithm>

namespace longtune {
namespace {

// Values of the frozen matrices of one layer.
double frozen_values(const ModelConfig& config) {
  double sum = 0;
  for (int kind = 0; kind < kLinearKinds; ++kind) {
    const LinearShape shape = linear_shape(config, static_cast<LinearKind>(kind));
    sum += static_cast<double>(shape.N) * static_cast<double>(shape.K);
  }
  return sum;
}

double head_values(const ModelConfig& config) {
  return static_cast<double>(config.V) * static_cast<double>(config.C);
}

double adapter_values(const ModelConfig& config, const LoraConfig* lora) {
  double sum = 0;
  for (int kind = 0; lora != nullptr && kind < kLinearKinds; ++kind) {
    const LinearShape shape = linear_shape(config, static_cast<LinearKind>(kind));
    sum += lora->targets[kind] ? static_cast<double>(lora->rank * (shape.N + shape.K)) : 0;
  }
  return sum;
}

// Tokens of closed chunks that a query of routed attention in `chunk` attends to, as many as it
// may; of a list that is seen whole, halfway between what the first query asks for and what it
// holds in the end.
std::int64_t routed_history(const ops::HgaSettings& hga, std::int64_t chunk) {
  const std::int64_t kept = std::min(chunk, hga.first_chunks + std::min(hga.last_chunks, chunk));
  const std::int64_t asked =
      std::min(hga.topk_groups * hga.group_tokens, hga.topk_chunks * hga.chunk_tokens);
  const bool whole_list =
      hga.routing == ops::HgaRouting::kCausal && hga.sight == ops::HgaSight::kList;
  const std::int64_t routed = whole_list ? (asked + hga.union_cap * hga.group_tokens) / 2 : asked;
  return kept * hga.chunk_tokens + std::min((chunk - kept) * hga.chunk_tokens, routed);
}

// Sums over the queries of the tokens that `attention` lets them attend to: of closed chunks, and
// of their own.
struct Pairs {
  double history = 0;
  double own = 0;
};

// In chunks of `chunk` tokens.
Pairs dense_pairs(std::int64_t chunk, std::int64_t tokens, std::int64_t first_position) {
  Pairs pairs;
  for (std::int64_t p = first_position; p < first_position + tokens; ++p) {
    pairs.history += static_cast<double>(p / chunk * chunk);
    pairs.own += static_cast<double>(p % chunk + 1);
  }
  return pairs;
}

Pairs pairs_of(const AttentionOptions& attention,
               std::int64_t tokens,
               std::int64_t first_position) {
  // Of dense attention nobody has checked the settings of the other kind.
  Pairs pairs = dense_pairs(attention.segment_unit(), tokens, first_position);
  if (attention.is_dense()) {
    return pairs;
  }
  pairs.history = 0;
  for (std::int64_t p = first_position; p < first_position + tokens; ++p) {
    pairs.history +=
        static_cast<double>(routed_history(attention.hga, p / attention.hga.chunk_tokens));
  }
  return pairs;
}

// One product of queries with the keys they see: 2 D a pair and head.
double score_flops(const ModelConfig& config,
                   const AttentionOptions& attention,
                   std::int64_t tokens,
                   std::int64_t first_position) {
  const Pairs pairs = pairs_of(attention, tokens, first_position);
  return 2 * (pairs.history + pairs.own) * static_cast<double>(config.Hq * config.D);
}

}  // namespace

double forward_flops(const ModelConfig& config,
                     const LoraConfig* lora,
                     const AttentionOptions& attention,
                     std::int64_t tokens,
                     std::int64_t first_position,
                     std::int64_t scored) {
  const auto T = static_cast<double>(tokens);
  const auto L = static_cast<double>(config.L);
  const double products = 2 * T * (frozen_values(config) + adapter_values(config, lora));
  const double head = 2 * head_values(config) * static_cast<double>(scored);
  return L * (products + 2 * score_flops(config, attention, tokens, first_position)) + head;
}

double training_flops(const ModelConfig& config,
                      const LoraConfig& lora,
                      const AttentionOptions& attention,
                      const TrainingPass& pass) {
  const auto T = static_cast<double>(pass.tokens);
  const auto L = static_cast<double>(config.L);
  const auto values_of = [&](LinearKind kind) {
    const LinearShape shape = linear_shape(config, kind);
    return static_cast<double>(shape.N) * static_cast<double>(shape.K);
  };
  const double last = values_of(LinearKind::kDown);
  const double first = values_of(LinearKind::kQ) + 2 * values_of(LinearKind::kK);
  // Three passes over frozen matrices (forward, again, input gradient), the middle one without the
  // last, the third without the first layer's q, k and v; four products a LoRA matrix (forward,
  // again, two gradients); attention: 2 products forward, 2 again, 5 backward; head: 2. Nothing is
  // done again of what is kept.
  const auto kept = static_cast<double>(pass.kept.product_layers);
  const double kept_attention = pass.kept.attention ? L : kept;
  const double scores = (9 * L - 2 * kept_attention) *
                        score_flops(config, attention, pass.tokens, pass.first_position);
  const double products =
      2 * T * (3 * frozen_values(config) - last + 4 * adapter_values(config, &lora));
  const double head = 4 * head_values(config) * static_cast<double>(pass.scored);
  const double saved =
      2 * T * (frozen_values(config) - last + adapter_values(config, &lora)) * kept;
  return L * products + scores - saved - 2 * T * first + head;
}

double history_attended(const AttentionOptions& attention,
                        std::int64_t tokens,
                        std::int64_t first_position) {
  const double all = dense_pairs(attention.segment_unit(), tokens, first_position).history;
  return all == 0 ? 1 : pairs_of(attention, tokens, first_position).history / all;
}

}  // namespace longtune
