#include "ops/cpu/isa.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace longtune::ops {
namespace {

TEST(Isa, NamesParseBack) {
  for (const Isa isa : kAllIsas) {
    EXPECT_EQ(parse_isa(name_of(isa)), isa);
  }
  EXPECT_FALSE(parse_isa("AVX2"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, TheWidestIsSelectedUntilAnotherIsChosen) {
  EXPECT_EQ(selected_isa(), best_isa());
  select_isa(Isa::kPortable);
  EXPECT_EQ(selected_isa(), Isa::kPortable);
  select_isa(best_isa());
  EXPECT_EQ(selected_isa(), best_isa());
}

TEST(Isa, RefusesWhatTheMachineLacks) {
  if (best_isa() == kAllIsas.back()) {
    GTEST_SKIP() << "this machine has every instruction set that is named";
  }
  EXPECT_THROW(select_isa(kAllIsas.back()), Error);
}

}  // namespace
}  // namespace longtune::ops
