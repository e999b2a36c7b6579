#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace longtune::bench {

/// A row of `bench kernels`: an operation at a shape, what it has to do, and how to run it.
struct Kernel {
  /// Runs the operation once, on copy `copy` of its operands.
  using Run = std::function<void(std::int64_t copy)>;

  std::string name;
  std::string shape;
  double flops = 0;  ///< two for a multiplication and its addition; 0: memory is what bounds it
  double bytes = 0;  ///< else: operands read once and results written once
  /// Makes the operands, in so many copies, which live as long as the result.
  std::function<Run(std::int64_t copies)> prepare;

  [[nodiscard]] bool is_bound_by_memory() const { return flops == 0; }
};

/// Kernel::prepare for operands that `make` makes: the first copy by it, the others as copies of
/// the first. `run` is given one of them.
template <class Make, class RunOne>
[[nodiscard]] std::function<Kernel::Run(std::int64_t)> on_copies(Make make, RunOne run) {
  return [make, run](std::int64_t copies) -> Kernel::Run {
    using Operands = std::invoke_result_t<Make>;
    auto all = std::make_shared<std::deque<Operands>>();
    all->push_back(make());
    while (static_cast<std::int64_t>(all->size()) < copies) {
      all->push_back(Operands(all->front()));
    }
    return [all, run](std::int64_t copy) { run((*all)[static_cast<std::size_t>(copy)]); };
  };
}

using Kernels = std::vector<Kernel>;

// Each adds the rows of its operations at the shapes of training and decoding.
void add_linear_kernels(Kernels& kernels);
void add_lora_kernels(Kernels& kernels);
void add_head_kernels(Kernels& kernels);
void add_attention_kernels(Kernels& kernels);
void add_row_kernels(Kernels& kernels);

}  // namespace longtune::bench
