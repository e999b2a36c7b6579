#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/plan.h"
#include "model/options.h"
#include "model/source.h"

namespace longtune {

struct SessionOptions {
  ModelOptions model;
  std::int64_t context = 2048;  ///< the most tokens a sequence may have
  std::int64_t block = 512;     ///< tokens computed at a time while reading, a multiple of 64
  std::optional<std::filesystem::path> adapter;  ///< a PEFT adapter to read with
};

/// A model, with or without an adapter, reading one sequence at a time.
class Session {
 public:
  /// What a session would need; loads nothing.
  [[nodiscard]] static Plan plan(const ModelSource& source, const SessionOptions& options);

  /// Takes the memory and loads the weights. Throws Error kOutOfBudget where the plan does not fit.
  Session(const ModelSource& source,
          const SessionOptions& options,
          const Budgets& budgets,
          const std::function<void(double)>& load_progress);
  ~Session();
  Session(Session&&) noexcept;

  /// Forgets the sequence.
  void reset();

  /// Tokens read so far.
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t context() const;

  /// Reads tokens and returns the logits (V) of the last one's successor. Throws Error
  /// kInvalidArgument past the context or for a token outside the vocabulary.
  [[nodiscard]] std::vector<float> read(std::span<const std::int32_t> tokens);

  /// Reads tokens and returns, for each, the nats of its successor in `targets` (ops::kNoTarget:
  /// not scored, 0).
  [[nodiscard]] std::vector<float> score(std::span<const std::int32_t> tokens,
                                         std::span<const std::int32_t> targets);

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] const Plan& plan() const;

  /// What moved between the tiers so far; nothing where keys and values are on the device.
  [[nodiscard]] std::optional<TieredKvStore::Traffic> traffic() const;
  [[nodiscard]] std::int64_t device_bytes_peak() const;
  [[nodiscard]] std::int64_t host_bytes_peak() const;

 private:
  struct State;

  // Runs tokens forward in blocks; `after_block` gets the first and the number of each block's
  // tokens.
  void advance(std::span<const std::int32_t> tokens,
               const std::function<void(std::int64_t, std::int64_t)>& after_block);

  std::unique_ptr<State> state_;
};

}  // namespace longtune
