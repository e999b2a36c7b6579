#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "ops/cpu/isa.h"
#include "tensor/tensor_view.h"

namespace longtune::ops {

/// Values around `mean`, spread evenly over +-`spread`, the same for the same seed.
inline std::vector<float> random_values(std::int64_t count,
                                        std::uint64_t seed,
                                        float spread = 1,
                                        float mean = 0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = mean + spread * static_cast<float>(2 * random_uniform(seed, i) - 1);
  }
  return values;
}

template <class Float>
std::vector<Float> rounded_to(const std::vector<float>& values) {
  std::vector<Float> result;
  result.reserve(values.size());
  for (const float value : values) {
    result.push_back(Float(value));
  }
  return result;
}

template <class Float>
std::vector<float> widened(const std::vector<Float>& values) {
  std::vector<float> result;
  result.reserve(values.size());
  for (const Float value : values) {
    result.push_back(static_cast<float>(value));
  }
  return result;
}

/// How far results of a dtype may be apart, relative to 1 + their size: one rounding of bf16, or
/// `f32`.
template <class Float>
constexpr float tolerance(float f32) {
  return sizeof(Float) == 2 ? 0x1p-7F : f32;
}

template <class Float>
void expect_near(const std::vector<Float>& fast,
                 const std::vector<Float>& truth,
                 float relative,
                 const std::string& what) {
  ASSERT_EQ(fast.size(), truth.size()) << what;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const auto expected = static_cast<float>(truth[i]);
    ASSERT_NEAR(static_cast<float>(fast[i]), expected, relative * (1 + std::abs(expected)))
        << what << " at " << i;
  }
}

/// That the differences of all values together are at most `relative` of the values together, each
/// counted as 0.01 at least: what expect_near cannot say of small ones.
template <class Float>
void expect_near_together(const std::vector<Float>& fast,
                          const std::vector<Float>& truth,
                          double relative,
                          const std::string& what) {
  ASSERT_EQ(fast.size(), truth.size()) << what;
  double differences = 0;
  double values = 1e-4 * static_cast<double>(truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double expected = static_cast<float>(truth[i]);
    const double difference = static_cast<float>(fast[i]) - expected;
    differences += difference * difference;
    values += expected * expected;
  }
  EXPECT_LE(std::sqrt(differences), relative * std::sqrt(values)) << what;
}

/// Whether the selected instruction set rounds probabilities and gradients of scores to bf16 for
/// attention of Float queries over such keys and values.
template <class Float>
bool rounds_probabilities(DType kv, std::int64_t D) {
  return selected_isa() >= Isa::kAvx512Bf16 && sizeof(Float) == 2 && kv == DType::kBf16 &&
         D % 16 == 0;
}

/// How far what attention sums in f32 may be from the truth there: `f32`, or a rounding of bf16.
template <class Float>
float attention_tolerance(DType kv, std::int64_t D, float f32) {
  return rounds_probabilities<Float>(kv, D) ? 0x1p-8F : f32;
}

/// The message of the Error that `call` throws; fails the test where it throws none or another
/// code.
template <class Call>
std::string error_of(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "expected an error";
  return "";
}

/// Runs `body` with every instruction set that this machine has.
template <class Body>
void with_each_isa(Body&& body) {
  for (const Isa isa : kAllIsas) {
    if (isa <= best_isa()) {
      SCOPED_TRACE(name_of(isa));
      select_isa(isa);
      body();
    }
  }
  select_isa(best_isa());
}

}  // namespace longtune::ops
