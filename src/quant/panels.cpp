#include "quant/panels.h"

#include <cstring>
#include <vector>

#include "base/half.h"
#include "quant/nf4.h"

namespace longtune {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

NibblePlace place_of(WeightFormat format, std::int64_t k, std::int64_t n) {
  return format == WeightFormat::kNf4 ? nf4_nibble_place(k, n) : gguf_nibble_place(k, n);
}

// Bytes in front of the values of a block in rows: its scale and minimum.
std::int64_t head_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
    case WeightFormat::kQ4_0:
      return 2;
    case WeightFormat::kQ4_1:
      return 4;
    default:
      return 0;
  }
}

// The low halves of eight bytes, side by side.
std::uint32_t low_halves(std::uint64_t bytes) {
  bytes &= 0x0F0F0F0F0F0F0F0F;
  bytes = (bytes | bytes >> 4) & 0x00FF00FF00FF00FF;
  bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFF;
  return static_cast<std::uint32_t>(bytes | bytes >> 16);
}

// The codes of a GGUF block of 16 rows, `stride` bytes apart: byte i of a row has codes i (low
// half) and i + 16.
void arrange_gguf_codes(const std::byte* codes, std::int64_t stride, std::byte* to) {
  for (std::int64_t n = 0; n < kPanelRows; ++n) {
    for (std::int64_t word = 0; word < 2; ++word) {
      const auto pairs = load<std::uint64_t>(codes + n * stride + 8 * word);
      const std::uint32_t first = low_halves(pairs);
      const std::uint32_t second = low_halves(pairs >> 4);
      std::byte* target = to + gguf_nibble_place(8 * word, n).byte;
      std::memcpy(target, &first, sizeof first);
      std::memcpy(target + 2 * 4 * kPanelRows, &second, sizeof second);
    }
  }
}

// The same of an NF4 block: byte i of a row has codes 2 i (high half) and 2 i + 1.
void arrange_nf4_codes(const std::byte* codes, std::int64_t stride, std::byte* to) {
  constexpr std::byte kLow{0x0F};
  constexpr std::byte kHigh{0xF0};
  for (std::int64_t n = 0; n < kPanelRows; ++n) {
    for (std::int64_t k = 0; k < kNf4Block; k += 4) {
      const std::byte first = codes[n * stride + k / 2];
      const std::byte second = codes[n * stride + k / 2 + 1];
      to[nf4_nibble_place(k, n).byte] = first >> 4 | (second & kHigh);
      to[nf4_nibble_place(k + 1, n).byte] = (first & kLow) | second << 4;
    }
  }
}

// `count` values of 16 rows, `stride` bytes apart, whole bytes each.
template <std::size_t kSize>
void arrange_values(const std::byte* values,
                    std::int64_t stride,
                    std::int64_t count,
                    std::byte* to) {
  for (std::int64_t k = 0; k < count; ++k) {
    for (std::int64_t n = 0; n < kPanelRows; ++n) {
      std::memcpy(to, values + n * stride + k * std::int64_t{kSize}, kSize);
      to += kSize;
    }
  }
}

// One panel of a plain format from its rows.
void arrange_plain(const WeightView& rows, const std::byte* from, std::byte* to) {
  const std::int64_t stride = row_bytes(rows.format, rows.K);
  if (rows.format == WeightFormat::kF32) {
    arrange_values<4>(from, stride, rows.K, to);
  } else {
    arrange_values<2>(from, stride, rows.K, to);
  }
}

// The same of a format in blocks.
void arrange_blocks(const WeightView& rows, const std::byte* from, std::byte* to) {
  const std::int64_t stride = row_bytes(rows.format, rows.K);
  const std::int64_t head = head_bytes(rows.format);
  const std::int64_t bytes = block_bytes(rows.format);
  for (std::int64_t block = 0; block < rows.K / block_values(rows.format); ++block) {
    const std::byte* in = from + block * bytes;
    std::byte* out = to + block * bytes * kPanelRows;
    for (std::int64_t part = 0; part < head; part += 2) {
      arrange_values<2>(in + part, stride, 1, out + part * kPanelRows);
    }
    in += head;
    out += head * kPanelRows;
    if (rows.format == WeightFormat::kQ8_0) {
      arrange_values<1>(in, stride, bytes - head, out);
    } else if (rows.format == WeightFormat::kNf4) {
      arrange_nf4_codes(in, stride, out);
    } else {
      arrange_gguf_codes(in, stride, out);
    }
  }
}

float half_at(const std::byte* from, std::int64_t index) {
  return half_to_float(load<std::uint16_t>(from + 2 * index));
}

// One value of a format that is a number of its own.
float plain_value(WeightFormat format, const std::byte* from) {
  switch (format) {
    case WeightFormat::kF16:
      return half_at(from, 0);
    case WeightFormat::kBf16:
      return static_cast<float>(load<BFloat16>(from));
    default:
      return load<float>(from);
  }
}

// Value k of column n of a block, which begins at `block`.
float block_value(WeightFormat format, const std::byte* block, std::int64_t k, std::int64_t n) {
  const std::byte* values = block + head_bytes(format) * kPanelRows;
  if (format == WeightFormat::kQ8_0) {
    return half_at(block, n) * static_cast<float>(load<std::int8_t>(values + k * kPanelRows + n));
  }
  const NibblePlace place = place_of(format, k, n);
  const int code = std::to_integer<int>(values[place.byte]) >> place.shift & 15;
  if (format == WeightFormat::kQ4_0) {
    return half_at(block, n) * static_cast<float>(code - 8);
  }
  if (format == WeightFormat::kQ4_1) {
    return half_at(block, n) * static_cast<float>(code) + half_at(block + 2 * kPanelRows, n);
  }
  return nf4_code()[static_cast<std::size_t>(code)];
}

}  // namespace

WeightView arrange_panels(const WeightView& rows, std::byte* memory) {
  WeightView panels = rows;
  if (rows.N % kPanelRows != 0) {
    return panels;
  }
  panels.order = WeightOrder::kPanels;
  const std::int64_t bytes = row_bytes(rows.format, rows.K) * kPanelRows;
  std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
  const std::int64_t blocks = rows.K / kNf4Block;
  for (std::int64_t panel = 0; panel < rows.N / kPanelRows; ++panel) {
    std::memcpy(copy.data(), memory + panel * bytes, copy.size());
    if (block_values(rows.format) == 1) {
      arrange_plain(rows, copy.data(), memory + panel * bytes);
    } else {
      arrange_blocks(rows, copy.data(), memory + panel * bytes);
    }
    if (rows.format == WeightFormat::kNf4) {
      std::byte* absmax = memory + (reinterpret_cast<const std::byte*>(rows.absmax) - rows.data) +
                          panel * blocks * kPanelRows;
      std::memcpy(copy.data(), absmax, static_cast<std::size_t>(blocks * kPanelRows));
      arrange_values<1>(copy.data(), blocks, blocks, absmax);
    }
  }
  return panels;
}

void unpack_from_panel(const WeightView& panels,
                       std::int64_t row,
                       std::int64_t column,
                       std::int64_t count,
                       float* out) {
  const std::int64_t n = row % kPanelRows;
  const std::int64_t values = block_values(panels.format);
  const std::int64_t bytes = block_bytes(panels.format) * kPanelRows;
  const std::byte* panel =
      panels.data + row / kPanelRows * kPanelRows * row_bytes(panels.format, panels.K);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t k = column + i;
    const std::byte* block = panel + k / values * bytes;
    if (values == 1) {
      out[i] = plain_value(panels.format, block + n * block_bytes(panels.format));
      continue;
    }
    out[i] = block_value(panels.format, block, k % values, n);
    if (panels.format == WeightFormat::kNf4) {
      out[i] *= nf4_scale(panels, row, k / kNf4Block);
    }
  }
}

}  // namespace longtune
