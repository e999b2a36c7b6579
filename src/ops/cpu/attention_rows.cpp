#include "ops/cpu/attention_rows.h"

#include <algorithm>

namespace longtune::ops::cpu {

std::int64_t QuerySet::first_of(std::int64_t page) const {
  return std::max(first_position, page * kPageTokens);
}

std::int64_t QuerySet::rows_of(std::int64_t page) const {
  return (std::min(end(), (page + 1) * kPageTokens) - first_of(page)) * group();
}

void append_blocks(const QuerySet& set,
                   std::int64_t kv_head,
                   std::int64_t page,
                   std::int64_t rows,
                   std::vector<QueryBlock>& blocks) {
  const std::int64_t end = set.rows_of(page);
  for (std::int64_t first = 0; first < end; first += rows) {
    blocks.push_back(
        {.kv_head = kv_head, .page = page, .first = first, .rows = std::min(rows, end - first)});
  }
}

void gather_rows(const QuerySet& set,
                 const QueryBlock& block,
                 const ConstTensorView& x,
                 float* rows) {
  const std::int64_t D = set.kv.D;
  const std::int64_t width = padded_dimension(D);
  std::fill_n(
      rows + block.rows * width, (panels_of(block.rows) * kPanelRows - block.rows) * width, 0.0F);
  with_float_type(x.dtype, [&]<class Float>(Float*) {
    for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t h) {
      const auto* source = x.as<Float>() + (t * set.Hq + h) * D;
      float* target = rows + row * width;
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) {
        target[d] = static_cast<float>(source[d]);
      }
      for (std::int64_t d = D; d < width; ++d) {
        target[d] = 0;
      }
    });
  });
}

void causal_bits(const QuerySet& set, const QueryBlock& block, std::uint64_t* seen) {
  const std::int64_t base = block.page * kPageTokens;
  std::fill_n(seen, panels_of(block.rows) * kPanelRows, std::uint64_t{1});
  for_each_row(set, block, [&](std::int64_t row, std::int64_t t, std::int64_t) {
    const std::int64_t last = set.first_position + t - base;
    seen[row] = ~std::uint64_t{0} >> (kPageTokens - 1 - last);
  });
}

KeyTile load_tile(const QuerySet& set,
                  const AttentionTiles& tiles,
                  std::int64_t kv_head,
                  std::int64_t page,
                  float* wide) {
  const std::byte* keys = set.kv.keys(page, kv_head);
  const std::byte* values = set.kv.values(page, kv_head);
  const std::int64_t count = std::min(kPageTokens, set.end() - page * kPageTokens);
  if (set.kv.dtype == DType::kF32) {
    return {.keys = reinterpret_cast<const float*>(keys),
            .values = reinterpret_cast<const float*>(values),
            .count = count};
  }
  float* wide_values = wide + kPageTokens * set.kv.D;
  tiles.widen(reinterpret_cast<const std::uint16_t*>(keys), count * set.kv.D, wide);
  tiles.widen(reinterpret_cast<const std::uint16_t*>(values), count * set.kv.D, wide_values);
  return {.keys = wide, .values = wide_values, .count = count};
}

float* thread_scratch(std::int64_t count) {
  constexpr std::int64_t kAligned = 16;  // floats in 64 bytes
  thread_local std::vector<float> memory;
  const auto needed = static_cast<std::size_t>(count + kAligned);
  if (memory.size() < needed) {
    memory.resize(needed);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

}  // namespace longtune::ops::cpu
