#include "quant/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace longtune {
namespace {

// Point i of n + 1 evenly spaced ones from 0.1 to 1, counted from the nearer end and with one
// rounding, as PyTorch's linspace does it: the last bits of the map depend on that.
float boundary(int i, int n) {
  const float step = (1.0F - 0.1F) / static_cast<float>(n);
  return i < (n + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                         : std::fma(-step, static_cast<float>(n - i), 1.0F);
}

// The "dynamic" type of 8-bit optimisers (arXiv:2110.02861): for each of seven decades up to 1, a
// number of means of neighbouring boundaries that doubles with the decade, with both signs; and 0
// and 1.
std::array<float, 256> make_dynamic_map() {
  std::array<float, 256> map{};
  std::size_t filled = 2;
  map[1] = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int count = 1 << decade;
    const auto unit = static_cast<float>(std::pow(10.0, decade - 6));
    for (int i = 0; i < count; ++i) {
      const float mean = (boundary(i, count) + boundary(i + 1, count)) / 2.0F;
      map[filled++] = unit * mean;
      map[filled++] = -unit * mean;
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

template <std::size_t Count>
std::array<float, Count - 1> midpoints(const std::array<float, Count>& values) {
  std::array<float, Count - 1> result;
  for (std::size_t i = 0; i + 1 < Count; ++i) {
    result[i] = (values[i] + values[i + 1]) / 2.0F;
  }
  return result;
}

// Index of the nearest of the values between which `bounds` lie; the lower one in a tie.
template <std::size_t Count>
std::uint8_t nearest(const std::array<float, Count>& bounds, float value) {
  std::uint8_t index = 0;
  for (const float bound : bounds) {
    index = static_cast<std::uint8_t>(index + (value > bound ? 1 : 0));
  }
  return index;
}

// Magnitudes compare like their bits, with NaN above infinity above all numbers.
float largest_magnitude(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU);
  }
  return std::bit_cast<float>(largest);
}

// Codes of one block of 64 values, two a byte; returns the block's scale.
float quantize_block(const float* values, std::byte* pairs) {
  static const auto bounds = midpoints(nf4_code());
  const float absmax = largest_magnitude(values, kNf4Block);
  const float inverse = 1.0F / std::max(absmax, 1e-38F);
  for (std::int64_t i = 0; i < kNf4Block; i += 2) {
    const unsigned high = nearest(bounds, std::clamp(values[i] * inverse, -1.0F, 1.0F));
    const unsigned low = nearest(bounds, std::clamp(values[i + 1] * inverse, -1.0F, 1.0F));
    pairs[i / 2] = static_cast<std::byte>(high << 4U | low);
  }
  return absmax;
}

// For each of 65,536 evenly spaced values from -1 to 1, the index of the nearest in the dynamic
// map. bitsandbytes quantises scales through such a table, so a scale near the middle between two
// values, or near 0, need not get the nearest of all.
const std::vector<std::uint8_t>& dynamic_table() {
  static const std::vector<std::uint8_t> table = [] {
    const auto bounds = midpoints(nf4_dynamic_map());
    std::vector<std::uint8_t> result(65536);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto value = static_cast<float>(static_cast<double>(i) / 32767.5 - 1.0);
      const auto above = std::lower_bound(bounds.begin(), bounds.end(), value);
      result[i] = static_cast<std::uint8_t>(above - bounds.begin());
    }
    return result;
  }();
  return table;
}

// Indices into the dynamic map of one block of scales; returns the nested scale. A block of zeros
// has index 0 throughout, with a scale of 0; so has one of subnormals too small for a reciprocal,
// where bitsandbytes multiplies by infinity.
float quantize_scales(const float* values, std::int64_t count, std::uint8_t* indices) {
  const float absmax = largest_magnitude(values, count);
  const float inverse = 1.0F / absmax;
  if (!std::isfinite(inverse)) {
    std::fill_n(indices, count, std::uint8_t{0});
    return 0;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const float unit = std::clamp(values[i] * inverse, -1.0F, 1.0F);
    const float place = std::fma(65535.0F, (unit + 1.0F) * 0.5F, 0.5F);
    indices[i] = dynamic_table()[static_cast<std::size_t>(place)];
  }
  return absmax;
}

constexpr std::size_t kLanes = 8;    // f32 values in a 256-bit vector
constexpr std::size_t kStreams = 4;  // vectors summed side by side
constexpr std::size_t kLevels = 4;   // of the cascade

using Streams = std::array<std::array<float, kLanes>, kStreams>;

void add(Streams& to, const Streams& from) {
  for (std::size_t stream = 0; stream < kStreams; ++stream) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      to[stream][lane] += from[stream][lane];
    }
  }
}

// Sums rows of 4 vectors, in runs: a level's sum joins the next one's when a run of it is complete.
Streams cascade_sum(const float* values, std::size_t rows) {
  std::size_t bits = 0;  // ceil(log2(rows))
  while ((std::size_t{1} << bits) < rows) {
    ++bits;
  }
  const std::size_t run_bits = std::max<std::size_t>(4, bits / kLevels);
  const std::size_t run = std::size_t{1} << run_bits;
  std::array<Streams, kLevels> level{};
  for (std::size_t row = 0; row < rows; ++row) {
    Streams next;
    std::copy_n(values + row * kStreams * kLanes, kStreams * kLanes, next.front().data());
    add(level[0], next);
    std::size_t done = row + 1;
    for (std::size_t i = 1; i < kLevels && done % run == 0; ++i, done >>= run_bits) {
      add(level[i], level[i - 1]);
      level[i - 1] = {};
    }
  }
  for (std::size_t i = 1; i < kLevels; ++i) {
    add(level[0], level[i]);
  }
  return level[0];
}

// The mean in f32, summed in the order in which PyTorch does it on one thread of a CPU with 256-bit
// vectors: the offset is part of the format, and every nested scale follows from its last bit.
float mean(const std::vector<float>& values) {
  const std::size_t vectors = values.size() / kLanes;
  Streams sums = cascade_sum(values.data(), vectors / kStreams);
  std::array<float, kLanes>& lanes = sums[0];
  const auto add_lanes = [&lanes](const float* from) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += from[lane];
    }
  };
  for (std::size_t i = vectors / kStreams * kStreams; i < vectors; ++i) {
    add_lanes(values.data() + i * kLanes);
  }
  for (std::size_t stream = 1; stream < kStreams; ++stream) {
    add_lanes(sums[stream].data());
  }
  float sum = 0;
  for (std::size_t i = vectors * kLanes; i < values.size(); ++i) {
    sum += values[i];
  }
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum / static_cast<float>(values.size());
}

}  // namespace

const std::array<float, 16>& nf4_code() {
  static constexpr std::array<float, 16> kCode = {
      -1.0F,
      -0.6961928009986877F,
      -0.5250730514526367F,
      -0.39491748809814453F,
      -0.28444138169288635F,
      -0.18477343022823334F,
      -0.09105003625154495F,
      0.0F,
      0.07958029955625534F,
      0.16093020141124725F,
      0.24611230194568634F,
      0.33791524171829224F,
      0.44070982933044434F,
      0.5626170039176941F,
      0.7229568362236023F,
      1.0F,
  };
  return kCode;
}

const std::array<float, 256>& nf4_dynamic_map() {
  static const std::array<float, 256> map = make_dynamic_map();
  return map;
}

float nf4_scale(const WeightView& weight, std::int64_t row, std::int64_t block) {
  const std::int64_t blocks = weight.K / kNf4Block;
  const std::int64_t flat = row * blocks + block;
  const std::int64_t at = weight.order == WeightOrder::kRows
                              ? flat
                              : (row / kPanelRows * blocks + block) * kPanelRows + row % kPanelRows;
  const float product =
      nf4_dynamic_map()[weight.absmax[at]] * weight.nested_absmax[flat / kNf4NestedBlock];
  return product + weight.nested_offset;
}

Nf4Quantizer::Nf4Quantizer(std::int64_t N, std::int64_t K, std::byte* memory)
    : N_(N), K_(K), memory_(memory) {
  if (!weight_bytes(WeightFormat::kNf4, N, K) || N == 0 || K == 0) {
    fail(ErrorCode::kUnsupported,
         "nf4",
         "a matrix ({}, {}) cannot be NF4: rows must be a multiple of {} values long",
         N,
         K,
         kNf4Block);
  }
  absmax_.reserve(static_cast<std::size_t>(N * K / kNf4Block));
}

void Nf4Quantizer::add_rows(std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  if (count % K_ != 0 || count / K_ > N_ - rows_) {
    fail(ErrorCode::kInvalidArgument,
         "nf4",
         "{} values are not whole rows of the {} x {} values still to come",
         count,
         N_ - rows_,
         K_);
  }
  std::byte* pairs = memory_ + rows_ * K_ / 2;
  for (std::int64_t i = 0; i < count; i += kNf4Block) {
    absmax_.push_back(quantize_block(values.data() + i, pairs + i / 2));
    if (!std::isfinite(absmax_.back())) {
      fail(ErrorCode::kBadInput, "nf4", "row {} holds a value that is not finite", rows_ + i / K_);
    }
  }
  rows_ += count / K_;
}

WeightView Nf4Quantizer::finish() {
  if (rows_ != N_) {
    fail(ErrorCode::kInvalidArgument, "nf4", "{} of {} rows were given", rows_, N_);
  }
  const float offset = mean(absmax_);
  if (!std::isfinite(offset)) {
    fail(ErrorCode::kBadInput, "nf4", "values are so large that the mean of the scales overflows");
  }
  for (float& scale : absmax_) {
    scale -= offset;
  }
  const WeightView view = weight_view(WeightFormat::kNf4, N_, K_, memory_, offset);
  std::byte* const indices = memory_ + (reinterpret_cast<const std::byte*>(view.absmax) - memory_);
  std::byte* const nested =
      memory_ + (reinterpret_cast<const std::byte*>(view.nested_absmax) - memory_);
  const auto blocks = static_cast<std::int64_t>(absmax_.size());
  for (std::int64_t first = 0; first < blocks; first += kNf4NestedBlock) {
    reinterpret_cast<float*>(nested)[first / kNf4NestedBlock] =
        quantize_scales(absmax_.data() + first,
                        std::min(kNf4NestedBlock, blocks - first),
                        reinterpret_cast<std::uint8_t*>(indices) + first);
  }
  return view;
}

}  // namespace longtune
