#include "model/adapter.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace longtune {
namespace {

// After two steps of AdamW on 1,280,000 parameters, more than the device has moments of at a time.
struct Updated {
  Arena arena{32 * kMiB, Arena::Options::from_environment()};
  Plan plan;
  Adapter adapter;

  explicit Updated(Tier moments)
      : adapter({.L = 1, .C = 640, .F = 6, .Hq = 10, .Hkv = 1, .D = 64, .V = 5},
                {.rank = 1000, .targets = {true}},
                moments,
                arena,
                plan) {
    adapter.initialise(3);
    fill_zero(adapter.first_moments());
    fill_zero(adapter.second_moments());
    copy_to_device(adapter.gradients(), values(adapter.params()).data(), adapter.params().bytes());
    for (std::int64_t step = 1; step <= 2; ++step) {
      adapter.update({.grad_scale = 0.5F, .lr = 1e-3, .step = step});
    }
  }

  [[nodiscard]] static std::vector<float> values(const TensorView& tensor) {
    std::vector<float> result(static_cast<std::size_t>(tensor.elements()));
    copy_to_host(result.data(), tensor, tensor.bytes());
    return result;
  }
};

TEST(Adapter, MomentsInHostMemoryChangeNoBit) {
  const Updated device(Tier::kDevice);
  const Updated host(Tier::kHost);
  EXPECT_EQ(device.plan.need(Tier::kHost), 0);
  EXPECT_EQ(host.plan.need(Tier::kHost), 2 * 4 * host.adapter.parameters());
  EXPECT_LT(host.arena.high_water(), device.arena.high_water());
  EXPECT_NE(Updated::values(host.adapter.params()), Updated::values(host.adapter.gradients()));
  EXPECT_EQ(Updated::values(host.adapter.params()), Updated::values(device.adapter.params()));
  EXPECT_EQ(Updated::values(host.adapter.first_moments()),
            Updated::values(device.adapter.first_moments()));
  EXPECT_EQ(Updated::values(host.adapter.second_moments()),
            Updated::values(device.adapter.second_moments()));
}

}  // namespace
}  // namespace longtune
