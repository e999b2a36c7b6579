#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/test_values.h"
#include "quant/nf4.h"
#include "quant/panels.h"
#include "quant/weight.h"

namespace longtune::ops {

inline constexpr std::array kAllFormats = {WeightFormat::kF32,
                                           WeightFormat::kF16,
                                           WeightFormat::kBf16,
                                           WeightFormat::kQ8_0,
                                           WeightFormat::kQ4_0,
                                           WeightFormat::kQ4_1,
                                           WeightFormat::kNf4};

/// A random matrix in any format, with values mostly within 2.
class TestWeight {
 public:
  TestWeight(WeightFormat format,
             std::int64_t N,
             std::int64_t K,
             std::uint64_t seed,
             WeightOrder order = WeightOrder::kRows)
      : memory_(static_cast<std::size_t>(weight_bytes(format, N, K).value())) {
    const std::vector<float> values = random_values(N * K, seed);
    view_ = weight_view(format, N, K, memory_.data());
    if (format == WeightFormat::kNf4) {
      Nf4Quantizer quantizer(N, K, memory_.data());
      quantizer.add_rows(values);
      view_ = quantizer.finish();
    } else if (block_values(format) == 1) {
      fill_plain(format, values);
    } else {
      fill_blocks(format, seed);
    }
    if (order == WeightOrder::kPanels) {
      view_ = arrange_panels(view_, memory_.data());
    }
  }

  [[nodiscard]] const WeightView& view() const { return view_; }

 private:
  void put(std::size_t at, const void* value, std::size_t bytes) {
    std::memcpy(memory_.data() + at, value, bytes);
  }

  void fill_plain(WeightFormat format, const std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t half = float_to_half(values[i]);
      const std::uint16_t bf16 = BFloat16(values[i]).bits;
      if (format == WeightFormat::kF32) {
        put(4 * i, &values[i], 4);
      } else {
        put(2 * i, format == WeightFormat::kF16 ? &half : &bf16, 2);
      }
    }
  }

  // Random bytes, with f16 numbers of reasonable size in front of every block.
  void fill_blocks(WeightFormat format, std::uint64_t seed) {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<std::byte>(random_bits(seed, i) >> 56U);
    }
    const auto bytes = static_cast<std::size_t>(block_bytes(format));
    const float largest = format == WeightFormat::kQ8_0 ? 0x1p-6F : 0x1p-3F;
    for (std::size_t at = 0; at < memory_.size(); at += bytes) {
      const auto uniform = static_cast<float>(random_uniform(seed + 1, at));
      const std::uint16_t scale = float_to_half(uniform * largest);
      const std::uint16_t minimum = float_to_half(-8 * uniform * largest);
      put(at, &scale, 2);
      if (format == WeightFormat::kQ4_1) {
        put(at + 2, &minimum, 2);
      }
    }
  }

  std::vector<std::byte> memory_;
  WeightView view_;
};

/// A matrix as products of Float activations see it on the selected instruction set: bf16 products
/// round its values.
template <class Float>
class SeenWeight {
 public:
  explicit SeenWeight(const WeightView& weight) : view_(weight) {
    if (selected_isa() < Isa::kAvx512Bf16 || sizeof(Float) == 4 ||
        weight.format == WeightFormat::kF32) {
      return;
    }
    std::vector<float> row(static_cast<std::size_t>(weight.K));
    for (std::int64_t n = 0; n < weight.N; ++n) {
      unpack(weight, n, 0, weight.K, row.data());
      const std::vector<BFloat16> rounded = rounded_to<BFloat16>(row);
      values_.insert(values_.end(), rounded.begin(), rounded.end());
    }
    view_ = weight_view(WeightFormat::kBf16,
                        weight.N,
                        weight.K,
                        reinterpret_cast<const std::byte*>(values_.data()));
  }

  [[nodiscard]] const WeightView& view() const { return view_; }

 private:
  std::vector<BFloat16> values_;
  WeightView view_;
};

/// The instruction sets of this machine.
inline std::vector<Isa> isas_here() {
  return {kAllIsas.begin(), std::find(kAllIsas.begin(), kAllIsas.end(), best_isa()) + 1};
}

/// Uses an instruction set while it lives.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) : before_(selected_isa()) { select_isa(isa); }

  ~WithIsa() { select_isa(before_); }

  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

}  // namespace longtune::ops
