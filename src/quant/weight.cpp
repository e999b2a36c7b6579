#include "quant/weight.h"

#include <fmt/format.h>

#include <cstring>

#include "base/bytes.h"
#include "base/half.h"
#include "quant/nf4.h"
#include "quant/panels.h"

namespace longtune {
namespace {

constexpr std::int64_t kPartAlignment = 128;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::int64_t nf4_nested_count(std::int64_t elements) {
  return round_up(elements / kNf4Block, kNf4NestedBlock) / kNf4NestedBlock;
}

// Where the parts of an NF4 matrix begin, and where the last one ends.
struct Nf4Layout {
  std::int64_t absmax;
  std::int64_t nested_absmax;
  std::int64_t bytes;
};

// `elements` * 4 must not overflow; the parts together take less than that.
Nf4Layout nf4_layout(std::int64_t elements) {
  Nf4Layout layout{};
  layout.absmax = round_up(elements / 2, kPartAlignment);
  layout.nested_absmax = layout.absmax + round_up(elements / kNf4Block, kPartAlignment);
  layout.bytes = layout.nested_absmax + 4 * nf4_nested_count(elements);
  return layout;
}

void unpack_q8_0(const std::byte* block, float* out) {
  const float scale = half_to_float(load<std::uint16_t>(block));
  for (int i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
  }
}

void unpack_q4_0(const std::byte* block, float* out) {
  const float scale = half_to_float(load<std::uint16_t>(block));
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[2 + i]);
    out[i] = scale * static_cast<float>((pair & 15) - 8);
    out[i + 16] = scale * static_cast<float>((pair >> 4) - 8);
  }
}

void unpack_q4_1(const std::byte* block, float* out) {
  const float scale = half_to_float(load<std::uint16_t>(block));
  const float minimum = half_to_float(load<std::uint16_t>(block + 2));
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(block[4 + i]);
    out[i] = scale * static_cast<float>(pair & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(pair >> 4) + minimum;
  }
}

void unpack_nf4(const WeightView& weight,
                std::int64_t row,
                std::int64_t column,
                std::int64_t count,
                float* out) {
  const auto& code = nf4_code();
  for (std::int64_t k = column; k < column + count; k += kNf4Block) {
    const float scale = nf4_scale(weight, row, k / kNf4Block);
    const std::byte* pairs = weight.data + (row * weight.K + k) / 2;
    for (std::int64_t i = 0; i < kNf4Block / 2; ++i) {
      const auto pair = std::to_integer<unsigned>(pairs[i]);
      *out++ = code[pair >> 4] * scale;
      *out++ = code[pair & 15] * scale;
    }
  }
}

// Calls `block(address, values)` for each block of the range.
template <class Block>
void for_each_block(const WeightView& weight,
                    std::int64_t row,
                    std::int64_t column,
                    std::int64_t count,
                    float* out,
                    Block block) {
  const std::int64_t values = block_values(weight.format);
  const std::int64_t bytes = block_bytes(weight.format);
  const std::byte* from = weight.data + (row * weight.K + column) / values * bytes;
  for (std::int64_t i = 0; i < count; i += values) {
    block(from, out + i);
    from += bytes;
  }
}

}  // namespace

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kQ8_0:
      return "q8_0";
    case WeightFormat::kQ4_0:
      return "q4_0";
    case WeightFormat::kQ4_1:
      return "q4_1";
    case WeightFormat::kNf4:
      return "nf4";
  }
  return "?";
}

std::string describe(const WeightView& weight) {
  return fmt::format("{} ({}, {})", name_of(weight.format), weight.N, weight.K);
}

std::int64_t block_values(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return 1;
    case WeightFormat::kQ8_0:
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ4_1:
      return 32;
    case WeightFormat::kNf4:
      return kNf4Block;
  }
  return 1;
}

std::int64_t block_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 4;
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return 2;
    case WeightFormat::kQ8_0:
      return 34;
    case WeightFormat::kQ4_0:
      return 18;
    case WeightFormat::kQ4_1:
      return 20;
    case WeightFormat::kNf4:
      return kNf4Block / 2;  // the codes; scales lie apart
  }
  return 0;
}

std::optional<std::int64_t> weight_bytes(WeightFormat format, std::int64_t N, std::int64_t K) {
  const auto elements = checked_mul(N, K);
  if (!elements || K % block_values(format) != 0) {
    return std::nullopt;
  }
  const auto plain = checked_mul(*elements, 4);
  if (!plain || !checked_add(*plain, 3 * kPartAlignment)) {
    return std::nullopt;  // no format takes more than f32
  }
  if (format == WeightFormat::kNf4) {
    return nf4_layout(*elements).bytes;
  }
  return *elements / block_values(format) * block_bytes(format);
}

std::int64_t row_bytes(WeightFormat format, std::int64_t K) {
  return K / block_values(format) * block_bytes(format);
}

WeightView weight_view(WeightFormat format,
                       std::int64_t N,
                       std::int64_t K,
                       const std::byte* memory,
                       float nested_offset) {
  WeightView view{.data = memory, .N = N, .K = K, .format = format};
  if (format == WeightFormat::kNf4) {
    view.nested_offset = nested_offset;
    if (memory != nullptr) {
      const Nf4Layout layout = nf4_layout(N * K);
      view.absmax = reinterpret_cast<const std::uint8_t*>(memory + layout.absmax);
      view.nested_absmax = reinterpret_cast<const float*>(memory + layout.nested_absmax);
    }
  }
  return view;
}

void unpack(const WeightView& weight,
            std::int64_t row,
            std::int64_t column,
            std::int64_t count,
            float* out) {
  if (weight.order == WeightOrder::kPanels) {
    return unpack_from_panel(weight, row, column, count, out);
  }
  const auto each = [&](auto block) { for_each_block(weight, row, column, count, out, block); };
  switch (weight.format) {
    case WeightFormat::kF32:
      std::memcpy(out,
                  weight.data + 4 * (row * weight.K + column),
                  static_cast<std::size_t>(count) * sizeof(float));
      return;
    case WeightFormat::kF16:
      return each(
          [](const std::byte* from, float* to) { *to = half_to_float(load<std::uint16_t>(from)); });
    case WeightFormat::kBf16:
      return each(
          [](const std::byte* from, float* to) { *to = static_cast<float>(load<BFloat16>(from)); });
    case WeightFormat::kQ8_0:
      return each(unpack_q8_0);
    case WeightFormat::kQ4_0:
      return each(unpack_q4_0);
    case WeightFormat::kQ4_1:
      return each(unpack_q4_1);
    case WeightFormat::kNf4:
      return unpack_nf4(weight, row, column, count, out);
  }
}

}  // namespace longtune
