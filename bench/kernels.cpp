// How near linear layers, adapters and the head's loss come to what the machine can do. Each shape
// is run for a while and the best run counts, once by the clock on the wall and once by the CPU
// time of all threads, which other work on the machine disturbs less.
//
//     bench_kernels [threads]

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "device/peak.h"
#include "device/threads.h"
#include "ops/cpu/isa.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/lora.h"
#include "quant/nf4.h"

namespace longtune {
namespace {

struct Best {
  double wall = std::numeric_limits<double>::infinity();
  double cpu = std::numeric_limits<double>::infinity();  ///< of all threads together
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Best best_of(const std::function<void()>& call) {
  Best best;
  double total = 0;
  for (int run = 0; run < 3 || (total < 0.5 && run < 50); ++run) {
    const double cpu = cpu_seconds();
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    best.wall = std::min(best.wall, wall.count());
    best.cpu = std::min(best.cpu, cpu_seconds() - cpu);
    total += wall.count();
  }
  return best;
}

std::vector<float> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(2 * random_uniform(seed, i) - 1);
  }
  return values;
}

std::vector<BFloat16> random_bf16(std::int64_t count, std::uint64_t seed) {
  const std::vector<float> values = random_values(count, seed);
  std::vector<BFloat16> result;
  for (const float value : values) {
    result.emplace_back(value);
  }
  return result;
}

struct Weight {
  std::vector<std::byte> memory;
  WeightView view;

  Weight(WeightFormat format, std::int64_t N, std::int64_t K)
      : memory(static_cast<std::size_t>(weight_bytes(format, N, K).value())),
        view(weight_view(format, N, K, memory.data())) {
    if (format == WeightFormat::kNf4) {
      Nf4Quantizer quantizer(N, K, memory.data());
      quantizer.add_rows(random_values(N * K, 1));
      view = quantizer.finish();
    }
  }
};

class Table {
 public:
  explicit Table(int threads) : peak_(measure_peak_flops()), threads_(threads) {
    fmt::print("{} threads, {}, peak {:.1f} GFLOP/s\n",
               threads,
               ops::name_of(ops::selected_isa()),
               peak_ * 1e-9);
    fmt::print("{:44} {:>9} {:>11} {:>10}\n", "", "ms", "share wall", "share cpu");
  }

  void row(const std::string& name, double flops, const std::function<void()>& call) const {
    const Best best = best_of(call);
    fmt::print("{:44} {:9.2f} {:10.1f}% {:9.1f}%\n",
               name,
               best.wall * 1e3,
               100 * flops / best.wall / peak_,
               100 * flops / best.cpu / (peak_ / threads_));
    std::fflush(stdout);
  }

 private:
  double peak_;
  int threads_;
};

struct Shape {
  WeightFormat format;
  std::int64_t T, N, K;
};

void run_linear(const Table& table, const Shape& s) {
  const Weight weight(s.format, s.N, s.K);
  auto x = random_bf16(s.T * s.K, 2);
  auto y = random_bf16(s.T * s.N, 3);
  const double flops = 2.0 * static_cast<double>(s.T) * static_cast<double>(s.N * s.K);
  const std::string name = fmt::format("{} T {} N {} K {}", name_of(s.format), s.T, s.N, s.K);
  table.row("forward  " + name, flops, [&] {
    ops::linear_forward(
        {.y = view(y, {s.T, s.N}), .x = view(x, {s.T, s.K}), .weight = weight.view});
  });
  table.row("backward " + name, flops, [&] {
    ops::linear_backward(
        {.dx = view(x, {s.T, s.K}), .dy = view(y, {s.T, s.N}), .weight = weight.view});
  });
}

void run_lora(const Table& table, std::int64_t T, std::int64_t N, std::int64_t K, std::int64_t R) {
  auto x = random_bf16(T * K, 2);
  auto y = random_bf16(T * N, 3);
  auto a = random_values(R * K, 4);
  auto b = random_values(N * R, 5);
  auto u = random_values(T * R, 6);
  auto du = u;
  const double flops = 2.0 * static_cast<double>(T) * static_cast<double>((N + K) * R);
  const std::string name = fmt::format("T {} N {} K {} R {}", T, N, K, R);
  table.row("lora forward  " + name, flops, [&] {
    ops::lora_forward({
                       .u = view(u, {T, R}),
                       .x = view(x, {T, K}),
                       .a = view(a, {R, K}),
                       .b = view(b, {N, R})});
  });
  auto dx = x;
  auto da = a;
  auto db = b;
  table.row("lora backward " + name, 2 * flops, [&] {
    ops::lora_backward({.da = view(da, {R, K}),
                        .db = view(db, {N, R}),
                        .dx = view(dx, {T, K}),
                        .du = view(du, {T, R}),
                        .dy = view(y, {T, N}),
                        .x = view(x, {T, K}),
                        .u = view(u, {T, R}),
                        .a = view(a, {R, K}),
                        .b = view(b, {N, R})});
  });
}

void run_head(const Table& table, const Shape& s, std::int64_t tile) {
  const Weight weight(s.format, s.N, s.K);
  auto x = random_bf16(s.T * s.K, 2);
  auto dx = x;
  std::vector<float> losses(static_cast<std::size_t>(s.T));
  std::vector<float> logits(static_cast<std::size_t>(tile * s.N));
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(s.T), 7);
  const double flops = 4.0 * static_cast<double>(s.T) * static_cast<double>(s.N * s.K);
  const std::string name =
      fmt::format("{} T {} V {} C {} tile {}", name_of(s.format), s.T, s.N, s.K, tile);
  table.row("head " + name, flops, [&] {
    ops::head_loss({.losses = view(losses, {s.T}),
                    .dx = view(dx, {s.T, s.K}),
                    .logits = view(logits, {tile, s.N}),
                    .x = view(x, {s.T, s.K}),
                    .targets = view(targets, {s.T}),
                    .weight = weight.view});
  });
}

void run(int threads) {
  use_threads(threads);
  const Table table(threads);
  run_linear(table, {WeightFormat::kNf4, 2048, 4096, 4096});
  for (const WeightFormat format : {WeightFormat::kQ4_1, WeightFormat::kQ8_0}) {
    run_linear(table, {format, 2048, 576, 576});
    run_linear(table, {format, 2048, 192, 576});
    run_linear(table, {format, 2048, 1536, 576});
    run_linear(table, {format, 2048, 576, 1536});
  }
  run_linear(table, {WeightFormat::kQ4_1, 64, 1536, 576});
  run_linear(table, {WeightFormat::kQ4_1, 1, 1536, 576});
  run_linear(table, {WeightFormat::kNf4, 1, 4096, 4096});
  run_lora(table, 2048, 576, 576, 16);
  run_lora(table, 2048, 4096, 4096, 16);
  run_head(table, {WeightFormat::kQ8_0, 256, 49152, 576}, 64);
  run_head(table, {WeightFormat::kQ8_0, 256, 49152, 576}, 256);
}

}  // namespace
}  // namespace longtune

int main(int argc, char** argv) {
  longtune::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : longtune::available_cores());
  return 0;
}
