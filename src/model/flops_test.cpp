#include "model/flops.h"

#include <gtest/gtest.h>

namespace longtune {
namespace {

constexpr std::int64_t kTokens = 1000;

AttentionOptions routed() {
  AttentionOptions options{.kind = AttentionKind::kHga};
  options.hga = {.first_chunks = 1,
                 .last_chunks = 2,
                 .group_tokens = 16,
                 .topk_chunks = 4,
                 .topk_groups = 8,
                 .union_cap = 24};
  return options;
}

// A model of one layer whose operations are those of attention and of as little else as possible.
ModelConfig narrow() {
  return {.L = 1, .C = 1, .F = 1, .Hq = 2, .Hkv = 1, .D = 4, .V = 1};
}

double attention_flops(const AttentionOptions& attention,
                       std::int64_t tokens,
                       std::int64_t first_position) {
  const auto of = [&](std::int64_t first) {
    return forward_flops(narrow(), nullptr, attention, tokens, first, 0);
  };
  const AttentionOptions dense;
  const double products =
      forward_flops(narrow(), nullptr, dense, 1, 0, 0) - 2.0 * 2 * 2 * 4;  // one pair of a token
  return of(first_position) - products * static_cast<double>(tokens);
}

TEST(Flops, DenseAttentionIsOfAllPairsWhateverTheOtherKindIsSetTo) {
  const double pairs = kTokens * (kTokens + 1) / 2.0;
  const double expected = 2 * 2 * pairs * 2 * 4;           // two products, two heads, four values
  for (const std::int64_t chunk : {64, 128, 0, -64, 7}) {  // those of dense attention go unchecked
    AttentionOptions options;
    options.hga.chunk_tokens = chunk;
    EXPECT_EQ(attention_flops(options, kTokens, 0), expected) << chunk;
    EXPECT_EQ(history_attended(options, kTokens, 0), 1) << chunk;
  }
}

TEST(Flops, RoutedAttentionIsOfSinksWindowGroupsAndTheOwnChunk) {
  struct Expectation {
    ops::HgaSight sight;
    std::int64_t chunk, groups;  // halfway between 8 and 24 of a list that is seen whole
  };

  for (const Expectation& e : {Expectation{ops::HgaSight::kAsked, 64, 8},
                               Expectation{ops::HgaSight::kList, 64, 16},
                               Expectation{ops::HgaSight::kAsked, 128, 8},
                               Expectation{ops::HgaSight::kList, 128, 16}}) {
    AttentionOptions options = routed();
    options.hga.sight = e.sight;
    options.hga.chunk_tokens = e.chunk;
    const std::int64_t position = 40 * e.chunk + 10;
    const double seen = static_cast<double>(3 * e.chunk + e.groups * 16);
    EXPECT_EQ(history_attended(options, 1, position), seen / static_cast<double>(40 * e.chunk));
    EXPECT_EQ(attention_flops(options, 1, position), 2 * 2 * (seen + 11) * 2 * 4);
  }
}

TEST(Flops, RoutedAttentionSeesNoMoreThanThereIs) {
  for (const std::int64_t chunk : {64, 128}) {
    AttentionOptions options = routed();
    options.hga.chunk_tokens = chunk;
    EXPECT_EQ(history_attended(options, chunk, 0), 1);          // nothing lies before
    EXPECT_EQ(history_attended(options, 1, 2 * chunk + 5), 1);  // within the window
    EXPECT_EQ(history_attended(options, 1, 4 * chunk), 1);      // one chunk, all of which is listed
    EXPECT_LT(history_attended(options, 1, 9 * chunk), 1);
  }
}

// The paper's routing shares no list that could be seen whole.
TEST(Flops, RoutingByBlocksIsOfWhatIsAskedFor) {
  AttentionOptions options = routed();
  options.hga.routing = ops::HgaRouting::kBlock;
  options.hga.block_queries = 64;
  EXPECT_EQ(history_attended(options, 1, 64 * 64), (3 * 64 + 8 * 16) / (64.0 * 64));
}

}  // namespace
}  // namespace longtune
