#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor_view.h"

namespace longtune {

/// Bytes of one tier that stand under one name in the plan.
struct PurposeBytes {
  std::string purpose;
  std::int64_t bytes = 0;
};

/// The device's memory: one block, taken at start, handed out in order. Nothing is freed singly;
/// a Scope gives back all that was taken since it began, so buffers with disjoint lifetimes share
/// memory.
///
/// A planning arena hands out views without data and only counts. The objects of a run are built
/// twice by the same code, first on a planning arena and then on a real one of exactly the size
/// found, so the plan cannot differ from what the run takes.
class Arena {
 public:
  struct Options {
    /// Makes the memory unreadable outside of operations (see OperationScope), so that a CPU build
    /// catches code that would dereference device pointers. Costs system calls; for tests.
    bool guard = false;

    /// Guarded where the environment variable LONGTUNE_GUARD_ARENA is 1, as the test presets set
    /// it.
    [[nodiscard]] static Options from_environment();
  };

  /// Takes `capacity` bytes of zeroed memory. Throws Error kIo where the system has no more.
  Arena(std::int64_t capacity, Options options);
  [[nodiscard]] static Arena planning();
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A block aligned to kAlignment and counted under `purpose`; null where planning. Throws Error
  /// kOutOfBudget, naming the purpose, where the arena has too little left.
  [[nodiscard]] std::byte* take_bytes(std::string_view purpose, std::int64_t bytes);
  [[nodiscard]] TensorView take(std::string_view purpose,
                                DType dtype,
                                std::initializer_list<std::int64_t> shape);

  /// Gives back, when it ends, everything that was taken since it began.
  class Scope {
   public:
    explicit Scope(Arena& arena);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::int64_t used_;
    std::vector<PurposeBytes> purposes_;
  };

  /// Keeps what scopes have shared so far from being taken again: call it when buffers that were
  /// taken inside ended scopes stay in use.
  void keep_high_water();

  static constexpr std::int64_t kAlignment = 128;

  [[nodiscard]] bool is_planning() const { return base_ == nullptr; }

  [[nodiscard]] std::int64_t used() const { return used_; }

  [[nodiscard]] std::int64_t high_water() const { return high_water_; }

  /// What was held when the high-water mark was reached, in the order of first use; sums to it.
  [[nodiscard]] const std::vector<PurposeBytes>& high_water_purposes() const { return peak_; }

 private:
  Arena() = default;

  std::byte* base_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
  std::int64_t high_water_ = 0;
  bool guarded_ = false;
  std::vector<PurposeBytes> purposes_;
  std::vector<PurposeBytes> peak_;
};

/// While one of these lives, guarded arenas are readable. Every public operation and copy opens
/// one; scopes nest. Opened by the thread that calls the operation, before it starts others. Time
/// and `flops`, two for a multiplication and its addition, go to the Profile that lives, if one
/// does.
class OperationScope {
 public:
  explicit OperationScope(const char* name, double flops = 0);
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;

  /// For operations that have to look at their arguments to count.
  void add_flops(double flops) { flops_ += flops; }

  OperationScope& operator=(const OperationScope&) = delete;

 private:
  const char* name_;
  double flops_;
  std::chrono::steady_clock::time_point start_;
};

/// Copies between host memory and an arena; `bytes` from `source` to `target`.
void copy_to_device(const TensorView& target, const void* source, std::int64_t bytes);
void copy_to_host(void* target, const ConstTensorView& source, std::int64_t bytes);
void fill_zero(const TensorView& target);

}  // namespace longtune
