#include "quant/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "support/expect_error.h"

namespace longtune {
namespace {

// What scripts/goldens/make_nf4.py keeps of one matrix.
struct Golden {
  std::uint32_t N = 0;
  std::uint32_t K = 0;
  float offset = 0;
  std::uint64_t codes_hash = 0;
  std::vector<std::uint8_t> absmax;
  std::vector<float> nested_absmax;
};

std::vector<Golden> goldens() {
  std::ifstream file(LONGTUNE_GOLDENS "/nf4.bin", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::size_t at = 4;
  const auto read = [&](void* to, std::size_t count) {
    ASSERT_LE(at + count, bytes.size());
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  std::uint32_t cases = 0;
  read(&cases, sizeof cases);
  std::vector<Golden> result(cases);
  for (Golden& golden : result) {
    read(&golden.N, 4);
    read(&golden.K, 4);
    read(&golden.offset, 4);
    read(&golden.codes_hash, 8);
    golden.absmax.resize(std::size_t{golden.N} * golden.K / 64);
    golden.nested_absmax.resize((golden.absmax.size() + 255) / 256);
    read(golden.absmax.data(), golden.absmax.size());
    read(golden.nested_absmax.data(), 4 * golden.nested_absmax.size());
  }
  return result;
}

// The matrix of that script.
std::vector<float> matrix(std::uint32_t N, std::uint32_t K) {
  std::vector<float> values(std::size_t{N} * K);
  const auto uniform = [N](std::uint64_t counter) {
    return static_cast<float>(random_bits(N, counter) >> 40U) * 0x1p-24F;
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float sum = uniform(3 * i) + uniform(3 * i + 1) + uniform(3 * i + 2) - 1.5F;
    values[i] = sum * (1 + static_cast<float>(i / K) / 8);
  }
  for (std::size_t row = 5; row < N; row += 16) {
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(row * K), 64, 0.0F);
  }
  values[0] = 1;
  for (std::size_t i = 1; i < 16; ++i) {
    values[i] = (nf4_code()[i - 1] + nf4_code()[i]) / 2;
  }
  for (std::size_t i = 16; i < 64; ++i) {
    values[i] = std::clamp(values[i], -1.0F, 1.0F);
  }
  return values;
}

std::uint64_t fnv1a(const std::byte* data, std::size_t count) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (std::size_t i = 0; i < count; ++i) {
    hash = (hash ^ std::to_integer<std::uint64_t>(data[i])) * 0x100000001B3U;
  }
  return hash;
}

std::vector<std::byte> memory_for(std::int64_t N, std::int64_t K) {
  return std::vector<std::byte>(static_cast<std::size_t>(*weight_bytes(WeightFormat::kNf4, N, K)));
}

TEST(Nf4, MakesTheBytesThatBitsandbytesMakes) {
  const auto all = goldens();
  ASSERT_FALSE(all.empty());
  for (const Golden& golden : all) {
    SCOPED_TRACE(fmt::format("{} x {}", golden.N, golden.K));
    auto memory = memory_for(golden.N, golden.K);
    Nf4Quantizer quantizer(golden.N, golden.K, memory.data());
    quantizer.add_rows(matrix(golden.N, golden.K));
    const WeightView weight = quantizer.finish();
    EXPECT_EQ(fnv1a(weight.data, std::size_t{golden.N} * golden.K / 2), golden.codes_hash);
    EXPECT_EQ(weight.nested_offset, golden.offset);
    EXPECT_TRUE(std::equal(golden.absmax.begin(), golden.absmax.end(), weight.absmax));
    EXPECT_TRUE(
        std::equal(golden.nested_absmax.begin(), golden.nested_absmax.end(), weight.nested_absmax));
  }
}

TEST(Nf4, RowsMayComeInAnyPortions) {
  const auto values = matrix(7, 192);
  auto at_once = memory_for(7, 192);
  auto in_parts = memory_for(7, 192);
  Nf4Quantizer whole(7, 192, at_once.data());
  whole.add_rows(values);
  Nf4Quantizer parts(7, 192, in_parts.data());
  const std::span all(values);
  parts.add_rows(all.first(192));
  parts.add_rows({});
  parts.add_rows(all.subspan(192, 4 * 192));
  parts.add_rows(all.last(2 * 192));
  EXPECT_EQ(whole.finish().nested_offset, parts.finish().nested_offset);
  EXPECT_EQ(at_once, in_parts);
}

TEST(Nf4, UnpacksToWithinHalfAStepOfWhatWasPacked) {
  const auto values = matrix(3, 128);
  auto memory = memory_for(3, 128);
  Nf4Quantizer quantizer(3, 128, memory.data());
  quantizer.add_rows(values);
  const WeightView weight = quantizer.finish();
  std::vector<float> row(128);
  for (std::int64_t n = 0; n < 3; ++n) {
    unpack(weight, n, 0, 128, row.data());
    for (std::size_t k = 0; k < row.size(); ++k) {
      // The widest gap between codes is 0.304 of the scale, which itself is off by up to 1 %.
      ASSERT_NEAR(row[k], values[static_cast<std::size_t>(n) * 128 + k], 0.17F * 1.9F);
    }
  }
}

TEST(Nf4, TheMapsAreSortedAndSpanOne) {
  const auto& map = nf4_dynamic_map();
  EXPECT_TRUE(std::is_sorted(map.begin(), map.end()));
  EXPECT_EQ(map.front(), -0.99296874F);
  EXPECT_EQ(map[127], 0);
  EXPECT_EQ(map.back(), 1);
  EXPECT_TRUE(std::is_sorted(nf4_code().begin(), nf4_code().end()));
}

TEST(Nf4, ScalesTooSmallForAReciprocalAreZeros) {
  auto memory = memory_for(2, 64);
  std::vector<float> values(128, 0.0F);
  values.back() = 1.4e-45F;
  Nf4Quantizer quantizer(2, 64, memory.data());
  quantizer.add_rows(values);
  const WeightView weight = quantizer.finish();
  EXPECT_EQ(weight.absmax[0], 0);
  EXPECT_EQ(weight.absmax[1], 0);
  EXPECT_EQ(weight.nested_absmax[0], 0);
  EXPECT_NEAR(nf4_scale(weight, 0, 1), 0, 1e-44F);
}

TEST(Nf4, RefusesScalesWhoseMeanOverflows) {
  auto memory = memory_for(2, 64);
  Nf4Quantizer quantizer(2, 64, memory.data());
  quantizer.add_rows(std::vector<float>(128, 3e38F));
  expect_error([&] { (void)quantizer.finish(); },
               ErrorCode::kBadInput,
               "[nf4] values are so large that the mean of the scales overflows");
}

TEST(Nf4, NamesWhatItRefuses) {
  auto memory = memory_for(2, 64);
  expect_error([&] { Nf4Quantizer(2, 96, memory.data()); },
               ErrorCode::kUnsupported,
               "[nf4] a matrix (2, 96) cannot be NF4: rows must be a multiple of 64 values long");
  Nf4Quantizer quantizer(2, 64, memory.data());
  std::vector<float> values(64, 1.0F);
  expect_error([&] { quantizer.add_rows(std::span(values).first(63)); },
               ErrorCode::kInvalidArgument,
               "[nf4] 63 values are not whole rows of the 2 x 64 values still to come");
  quantizer.add_rows(values);
  expect_error([&] { (void)quantizer.finish(); },
               ErrorCode::kInvalidArgument,
               "[nf4] 1 of 2 rows were given");
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    values[5] = bad;
    Nf4Quantizer other(2, 64, memory.data());
    other.add_rows(std::vector<float>(64, 0.0F));
    expect_error([&] { other.add_rows(values); },
                 ErrorCode::kBadInput,
                 "[nf4] row 1 holds a value that is not finite");
  }
}

}  // namespace
}  // namespace longtune
