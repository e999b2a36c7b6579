#include "apps/bench_kernels/operands.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "base/bytes.h"
#include "base/half.h"
#include "base/random.h"
#include "quant/nf4.h"
#include "quant/panels.h"

namespace longtune::bench {
namespace {

// Random numbers take longer than copies, so values repeat after a while: a prime number of them,
// so that rows differ.
constexpr std::int64_t kPeriod = 65'521;

constexpr std::int64_t kAlignment = 128;
constexpr std::int64_t kLargePage = 2 * kMiB;

float random_value(std::uint64_t seed, std::int64_t i) {
  return static_cast<float>(2 * random_uniform(seed, i) - 1);
}

/// `bytes` of blocks: random bytes behind f16 numbers of reasonable size.
void fill_blocks(WeightFormat format, std::byte* memory, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; ++i) {
    memory[i] = static_cast<std::byte>(random_bits(1, i) >> 56U);
  }
  for (std::int64_t at = 0; at < bytes; at += block_bytes(format)) {
    const std::uint16_t scale = float_to_half(0.01F + 0.01F * random_value(2, at));
    std::memcpy(memory + at, &scale, sizeof scale);
    if (format == WeightFormat::kQ4_1) {
      std::memcpy(memory + at + sizeof scale, &scale, sizeof scale);
    }
  }
}

void fill_plain(WeightFormat format, std::byte* memory, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = random_value(1, i);
    const std::uint16_t half =
        format == WeightFormat::kF16 ? float_to_half(value) : BFloat16(value).bits;
    if (format == WeightFormat::kF32) {
      std::memcpy(memory + 4 * i, &value, 4);
    } else {
      std::memcpy(memory + 2 * i, &half, 2);
    }
  }
}

}  // namespace

Bytes::Bytes(std::int64_t size) : size_(size), memory_(nullptr, &std::free) {
  const std::int64_t alignment = size < kLargePage ? kAlignment : kLargePage;
  const auto rounded =
      static_cast<std::size_t>(round_up(std::max<std::int64_t>(1, size), alignment));
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (memory_ == nullptr) {
    throw std::bad_alloc();
  }
  if (size >= kLargePage) {
    (void)madvise(memory_.get(), rounded, MADV_HUGEPAGE);  // a wish
  }
  std::memset(memory_.get(), 0, rounded);
}

Bytes::Bytes(const Bytes& other) : Bytes(other.size_) {
  std::memcpy(memory_.get(), other.memory_.get(), static_cast<std::size_t>(size_));
}

Values::Values(DType dtype, std::int64_t count, std::uint64_t seed)
    : memory_(count * size_of(dtype)), dtype_(dtype) {
  with_float_type(dtype, [&]<class Float>(Float*) {
    auto* values = reinterpret_cast<Float*>(memory_.data());
    for (std::int64_t i = 0; i < std::min(count, kPeriod); ++i) {
      values[i] = Float(random_value(seed, i));
    }
    for (std::int64_t i = kPeriod; i < count; ++i) {
      values[i] = values[i - kPeriod];
    }
  });
}

TensorView Values::shaped(std::initializer_list<std::int64_t> shape) {
  TensorView result{.data = memory_.data(), .dtype = dtype_};
  return result.reshaped(shape);
}

Weight::Weight(WeightFormat format, std::int64_t N, std::int64_t K)
    : format_(format), N_(N), K_(K), memory_(weight_bytes(format, N, K).value()) {
  if (format == WeightFormat::kNf4) {
    fill_nf4();
  } else {
    fill_rows();
  }
  order_ = arrange_panels(view(), memory_.data()).order;
}

WeightView Weight::view() const {
  WeightView result = weight_view(format_, N_, K_, memory_.data(), nested_offset_);
  result.order = order_;
  return result;
}

void Weight::fill_nf4() {
  std::vector<float> row(static_cast<std::size_t>(K_));
  for (std::int64_t k = 0; k < K_; ++k) {
    row[static_cast<std::size_t>(k)] = random_value(1, k);
  }
  Nf4Quantizer quantizer(N_, K_, memory_.data());
  for (std::int64_t n = 0; n < N_; ++n) {
    quantizer.add_rows(row);
  }
  nested_offset_ = quantizer.finish().nested_offset;
}

void Weight::fill_rows() {
  const std::int64_t bytes = row_bytes(format_, K_);
  if (block_values(format_) == 1) {
    fill_plain(format_, memory_.data(), K_);
  } else {
    fill_blocks(format_, memory_.data(), bytes);
  }
  for (std::int64_t n = 1; n < N_; ++n) {
    std::memcpy(memory_.data() + n * bytes, memory_.data(), static_cast<std::size_t>(bytes));
  }
}

}  // namespace longtune::bench
