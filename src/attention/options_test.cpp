#include "attention/options.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace longtune {
namespace {

AttentionOptions hga() {
  return {.kind = AttentionKind::kHga};
}

TEST(AttentionOptions, DefaultsAndThePapersSettingsAreValid) {
  EXPECT_NO_THROW(check(hga()));
  AttentionOptions paper = hga();
  paper.hga = paper_hga_settings();
  EXPECT_NO_THROW(check(paper));
  EXPECT_EQ(paper.hga.capacity(), 32);
}

TEST(AttentionOptions, NameWhatIsWrong) {
  const auto refused = [](auto change, const char* message) {
    AttentionOptions options = hga();
    change(options.hga);
    expect_error([&] { check(options); }, ErrorCode::kInvalidArgument, message);
    options.kind = AttentionKind::kDense;  // which they do not concern
    EXPECT_NO_THROW(check(options));
  };
  refused([](auto& s) { s.group_tokens = 4; }, "--hga.group 4 is not 8, 16, 32 or 64");
  refused([](auto& s) { s.group_tokens = 0; }, "--hga.group 0 is not 8, 16, 32 or 64");
  refused([](auto& s) { s.block_queries = 48; },
          "--hga.route-block 48 does not divide the chunk of 64");
  refused([](auto& s) { s.union_cap = 23; }, "--hga.union-cap 23 is not in 24 .. 4096");
  refused([](auto& s) { s.topk_chunks = 0; }, "--hga.topk-chunks 0 is not in 1 .. 4096");
  refused([](auto& s) { s.first_chunks = -1; }, "--hga.keep-first -1 is not in 0 .. 4096");
  refused([](auto& s) { s.routing = ops::HgaRouting::kBlock; },
          "--hga.route-block 16 is not the chunk of 64, as --hga.routing block needs");
  refused([](auto& s) { s.chunk_tokens = 96; }, "--hga.chunk 96 is neither 64 nor 128");
}

}  // namespace
}  // namespace longtune
