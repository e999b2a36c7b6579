#include "ops/convert.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longtune::ops {
namespace {

TEST(Convert, RoundsToNearestEvenAndBack) {
  std::vector<float> x{1.0F, 1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F, -2.5F};
  std::vector<BFloat16> narrow(4);
  convert({.y = view(narrow, {2, 2}), .x = view(std::as_const(x), {2, 2})});
  std::vector<float> wide(4);
  convert({.y = view(wide, {4}), .x = view(std::as_const(narrow), {4})});
  EXPECT_EQ(wide, (std::vector<float>{1.0F, 1.0F, 1.0F + 0x1p-6F, -2.5F}));
}

TEST(Convert, NamesBothShapesWhenTheyDisagree) {
  std::vector<float> x(4);
  std::vector<float> y(2);
  try {
    convert({.y = view(y, {2}), .x = view(std::as_const(x), {4})});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[convert] y f32 (2) does not match x f32 (4)");
  }
}

}  // namespace
}  // namespace longtune::ops
