#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/config.h"

// The reference computes on f32 tensors with f64 scalars, which enter an operation rounded to f32,
// and divides a scalar by a tensor as reciprocal times scalar. Both are followed here.

namespace longtune {
namespace {

float f32(double value) {
  return static_cast<float>(value);
}

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: long wavelengths are stretched, short ones kept, with a ramp in between.
float scaled_llama3(const RopeConfig& rope, float frequency) {
  const float wavelength = 1.0F / frequency * f32(kTwoPi);
  const float factor = f32(rope.factor);
  if (wavelength > f32(rope.original_context / rope.low_freq_factor)) {
    return frequency / factor;
  }
  if (wavelength < f32(rope.original_context / rope.high_freq_factor)) {
    return frequency;
  }
  const float turns = 1.0F / wavelength * f32(rope.original_context);
  const float smooth =
      (turns - f32(rope.low_freq_factor)) / f32(rope.high_freq_factor - rope.low_freq_factor);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

// The pair of indices between which YaRN goes over from kept to stretched frequencies.
struct YarnRange {
  double low;
  double high;
};

YarnRange yarn_range(const RopeConfig& rope, std::int64_t D) {
  // The index whose frequency makes `turns` rotations within the original context.
  const auto index = [&](double turns) {
    return static_cast<double>(D) * std::log(rope.original_context / (turns * kTwoPi)) /
           (2 * std::log(rope.theta));
  };
  YarnRange range{index(rope.beta_fast), index(rope.beta_slow)};
  if (rope.truncate) {
    range = {std::floor(range.low), std::ceil(range.high)};
  }
  range = {std::max(range.low, 0.0), std::min(range.high, static_cast<double>(D - 1))};
  if (range.low == range.high) {
    range.high += 0.001;  // no division by zero; the ramp becomes a step
  }
  return range;
}

float scaled_yarn(const RopeConfig& rope, const YarnRange& range, std::int64_t i, float power) {
  const float ramp = (static_cast<float>(i) - f32(range.low)) / f32(range.high - range.low);
  const float kept = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
  const float stretched_frequency = 1.0F / (f32(rope.factor) * power);
  return stretched_frequency * (1.0F - kept) + 1.0F / power * kept;
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t D) {
  RopeFrequencies result;
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  const YarnRange range = yarn ? yarn_range(rope, D) : YarnRange{};
  for (std::int64_t i = 0; i < D / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(D);
    const float power = std::pow(f32(rope.theta), exponent);
    float frequency = 1.0F / power;
    if (rope.scaling == RopeScaling::kLinear) {
      frequency /= f32(rope.factor);
    } else if (rope.scaling == RopeScaling::kLlama3) {
      frequency = scaled_llama3(rope, frequency);
    } else if (yarn) {
      frequency = scaled_yarn(rope, range, i, power);
    } else if (!rope.divisors.empty()) {
      frequency /= rope.divisors[static_cast<std::size_t>(i)];
    }
    result.frequencies.push_back(frequency);
  }
  if (yarn) {
    const double by_factor = rope.factor <= 1 ? 1.0 : 0.1 * std::log(rope.factor) + 1.0;
    result.scale = f32(rope.attention_factor > 0 ? rope.attention_factor : by_factor);
  }
  return result;
}

}  // namespace longtune
