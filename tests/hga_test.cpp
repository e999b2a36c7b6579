// Hierarchical Global Attention through the whole model: what must hold of it when it reads and
// when it trains.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "device/threads.h"
#include "infer/session.h"
#include "support/expect_error.h"
#include "support/training.h"
#include "train/remedy.h"

namespace longtune {
namespace {

constexpr std::int64_t kContext = 520;  // eight chunks and a part

AttentionOptions narrow_hga() {
  AttentionOptions options{.kind = AttentionKind::kHga};
  options.hga.first_chunks = 1;
  options.hga.last_chunks = 1;
  options.hga.topk_chunks = 3;
  options.hga.topk_groups = 4;
  options.hga.union_cap = 12;
  return options;
}

AttentionOptions block_hga() {
  AttentionOptions options = narrow_hga();
  options.hga.routing = ops::HgaRouting::kBlock;
  options.hga.block_queries = 64;
  return options;
}

// So few pages a block that a bank of that size has to be filled again and again for a cell.
AttentionOptions bank_filling_hga() {
  AttentionOptions options = narrow_hga();
  options.hga.first_chunks = 0;
  options.hga.last_chunks = 0;
  options.hga.topk_groups = 2;
  options.hga.union_cap = 2;
  return options;
}

// Sees everything, as dense attention does, through its window.
AttentionOptions wide_hga() {
  AttentionOptions options = narrow_hga();
  options.hga.last_chunks = 1000;
  return options;
}

// In chunks of two pages: cells of most sizes begin inside one and close it.
AttentionOptions in_chunks_of_128(AttentionOptions options) {
  options.hga.chunk_tokens = 128;
  options.hga.first_chunks = 0;  // there are four
  if (options.hga.routing == ops::HgaRouting::kBlock) {
    options.hga.block_queries = 128;
  }
  return options;
}

// All pages in host memory, all on disk, and both, with the smallest bank that works.
std::vector<KvTiers> tiers_of(const ModelConfig& config,
                              DType kv,
                              const AttentionOptions& attention,
                              const std::filesystem::path& directory) {
  const std::int64_t stored = ops::kv_page_bytes(config.Hkv, config.D, kv);
  const std::int64_t page = ops::kv_page_bytes(config.Hkv, config.D, ops::kv_device_dtype(kv));
  const ops::HgaSettings& hga = attention.hga;
  const std::int64_t block = (hga.first_chunks + hga.last_chunks + 1) * hga.chunk_pages() - 1 +
                             config.Hkv * hga.capacity();
  const std::int64_t pages = kContext / ops::kPageTokens + 1;
  const auto bank = [&](std::int64_t spilled) {
    return std::min(kv == DType::kI8 ? pages - 1 : spilled, block) * page;
  };
  return {
      {},
      {.host_bytes = 0, .spill_dir = directory, .bank_bytes = bank(pages - 1)},
      {.host_bytes = 3 * stored * config.L, .spill_dir = directory, .bank_bytes = bank(pages - 4)},
      {.host_bytes = 0, .spill_dir = directory}};
}

class HgaReading : public testing::Test {
 protected:
  HgaReading() : source_(open_model(test::goldens() / "models" / "qwen3")) {
    for (const char c : test::text_of(kContext, 5)) {
      tokens_.push_back(c % 90);
    }
  }

  // Nats of each token's successor, read in blocks of `block`.
  [[nodiscard]] std::vector<float> nats(const AttentionOptions& attention,
                                        std::int64_t block,
                                        const std::vector<std::int32_t>& tokens,
                                        const std::optional<KvTiers>& tiers = {},
                                        const RopeChoice& rope = {}) const {
    SessionOptions options{.context = kContext, .block = block};
    options.model.kv = kv_;
    options.model.rope = rope;
    options.model.attention = attention;
    options.model.kv_tiers = tiers;
    Session session(*source_, options, {}, nullptr);
    std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
    targets.push_back(0);
    return session.score(tokens, targets);
  }

  std::unique_ptr<ModelSource> source_;
  std::vector<std::int32_t> tokens_;
  DType kv_ = DType::kBf16;
};

TEST_F(HgaReading, WithAWindowOverEverythingIsDense) {
  EXPECT_EQ(nats(wide_hga(), 512, tokens_), nats({}, 512, tokens_));
  EXPECT_NE(nats(narrow_hga(), 512, tokens_), nats({}, 512, tokens_));
  EXPECT_EQ(nats(in_chunks_of_128(wide_hga()), 512, tokens_), nats({}, 512, tokens_));
  const std::vector<float> narrow = nats(in_chunks_of_128(narrow_hga()), 512, tokens_);
  EXPECT_NE(narrow, nats({}, 512, tokens_));
  EXPECT_NE(narrow, nats(narrow_hga(), 512, tokens_));
}

// Stretched until no pair turns by a rounding of a summary, both sorts of summaries are the same
// means, which they are not as the model is: summaries go by the frequencies after scaling. (A list
// that is seen whole shows which of two groups was a rounding better.)
TEST_F(HgaReading, SummariesKnowTheRopeScaling) {
  AttentionOptions mixed = narrow_hga();
  mixed.hga.sight = ops::HgaSight::kAsked;
  AttentionOptions mean = mixed;
  mean.summary = ops::HgaSummary::kMean;
  const RopeOverride still{.scaling = RopeScaling::kLinear, .factor = kLargestRopeFactor};
  EXPECT_EQ(nats(mixed, 512, tokens_, {}, still), nats(mean, 512, tokens_, {}, still));
  EXPECT_NE(nats(mixed, 512, tokens_), nats(mean, 512, tokens_));
}

TEST_F(HgaReading, InBlocksOfAnySizeGivesTheSameBits) {
  for (const AttentionOptions& attention : {narrow_hga(), in_chunks_of_128(narrow_hga())}) {
    const std::vector<float> whole = nats(attention, kContext, tokens_);
    for (const std::int64_t block : {1, 50, 64, 512}) {
      EXPECT_EQ(nats(attention, block, tokens_), whole) << block;
    }
  }
}

TEST_F(HgaReading, NeverLooksAheadUnlessItRoutesByBlocks) {
  constexpr std::int64_t kChanged = 490;  // in the last whole chunk
  std::vector<std::int32_t> changed = tokens_;
  for (std::int64_t i = kChanged; i < kContext; ++i) {
    changed[i] = (changed[i] + 31) % 90;
  }
  const auto before = [&](const AttentionOptions& attention, const auto& tokens) {
    std::vector<float> result = nats(attention, kContext, tokens);
    result.resize(kChanged - 1);  // the last one's target changed
    return result;
  };
  EXPECT_EQ(before(narrow_hga(), changed), before(narrow_hga(), tokens_));
  EXPECT_NE(before(block_hga(), changed), before(block_hga(), tokens_));
  const AttentionOptions wide = in_chunks_of_128(narrow_hga());
  EXPECT_EQ(before(wide, changed), before(wide, tokens_));
}

TEST_F(HgaReading, TiersChangeNoBit) {
  const TemporaryDirectory scratch;
  for (const AttentionOptions& attention :
       {bank_filling_hga(), in_chunks_of_128(bank_filling_hga())}) {
    const std::vector<float> expected = nats(attention, 128, tokens_);
    for (const KvTiers& tiers :
         tiers_of(source_->config(), DType::kBf16, attention, scratch.path())) {
      EXPECT_EQ(nats(attention, 128, tokens_, tiers), expected);
      EXPECT_EQ(nats(attention, 50, tokens_, tiers), expected);
    }
  }
  EXPECT_EQ(nats({}, 128, tokens_, KvTiers{}), nats({}, 128, tokens_));
  EXPECT_EQ(nats({}, 128, tokens_, KvTiers{.host_bytes = 0, .spill_dir = scratch.path()}),
            nats({}, 128, tokens_));
}

TEST_F(HgaReading, Int8HasTheSameBitsFromEveryTierAndInEveryCut) {
  const TemporaryDirectory scratch;
  const AttentionOptions attention = bank_filling_hga();
  const std::vector<float> wide = nats(attention, 128, tokens_);
  kv_ = DType::kI8;
  const std::vector<float> expected = nats(attention, 128, tokens_);
  EXPECT_NE(expected, wide);
  for (const KvTiers& tiers : tiers_of(source_->config(), DType::kI8, attention, scratch.path())) {
    for (const std::int64_t block : {128, 50, 1}) {
      EXPECT_EQ(nats(attention, block, tokens_, tiers), expected) << block;
    }
  }
  const std::vector<float> whole = nats(narrow_hga(), kContext, tokens_);
  for (const std::int64_t block : {1, 50, 64, 512}) {
    EXPECT_EQ(nats(narrow_hga(), block, tokens_), whole) << block;
  }
}

TEST_F(HgaReading, Int8OverAWindowOnEverythingIsDenseOverTiers) {
  const TemporaryDirectory scratch;
  kv_ = DType::kI8;
  const std::vector<float> dense = nats({}, 128, tokens_, KvTiers{});
  EXPECT_EQ(nats({}, 50, tokens_, KvTiers{.host_bytes = 0, .spill_dir = scratch.path()}), dense);
  EXPECT_EQ(nats(wide_hga(), 512, tokens_), dense);
  kv_ = DType::kBf16;
  const std::vector<float> exact = nats({}, 128, tokens_);
  double difference = 0;
  for (std::size_t i = 0; i < dense.size(); ++i) {
    difference += std::abs(exact[i] - dense[i]) / static_cast<double>(dense.size());
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.05);
}

TEST_F(HgaReading, Int8OfDenseAttentionOnTheDeviceIsRefused) {
  kv_ = DType::kI8;
  expect_error([&] { (void)nats({}, 64, tokens_); },
               ErrorCode::kInvalidArgument,
               "--kv int8 is for keys and values that leave the device, but dense attention keeps "
               "all of them there: add --kv-host SIZE, or take --attention hga");
}

TEST_F(HgaReading, ABankThatIsTooSmallIsRefusedBeforeItRuns) {
  const TemporaryDirectory scratch;
  expect_error(
      [&] {
        (void)nats(narrow_hga(),
                   64,
                   tokens_,
                   KvTiers{.host_bytes = 0, .spill_dir = scratch.path(), .bank_bytes = 1000});
      },
      ErrorCode::kOutOfBudget,
      "--kv-bank 1000 B: the pages that one block of queries may see need");
  for (const DType kv : {DType::kBf16, DType::kI8}) {
    kv_ = kv;
    const AttentionOptions attention = bank_filling_hga();
    KvTiers smallest = tiers_of(source_->config(), kv, attention, scratch.path()).at(1);
    (void)nats(attention, 64, tokens_, smallest);
    --*smallest.bank_bytes;
    expect_error([&] { (void)nats(attention, 64, tokens_, smallest); },
                 ErrorCode::kOutOfBudget,
                 "the pages that one block of queries may see need");
  }
}

class HgaTraining : public testing::Test {
 protected:
  HgaTraining()
      : source_(open_model(test::goldens() / "models" / "qwen3")),
        data_(test::dataset_of({test::text_of(1040, 1)}, kContext, scratch_)) {
    options_.model = {.activations = DType::kF32, .kv = DType::kF32};
    options_.model.attention = narrow_hga();
    options_.lora.rank = 4;
    options_.context = kContext;
    options_.segment = 192;
    options_.steps = 2;
    options_.lr = 1e-2;
    options_.seed = 7;
  }

  // The loss of the second step, which every gradient of the first one has changed.
  [[nodiscard]] double second_loss() const {
    Trainer trainer(*source_, options_, Budgets{}, data_, nullptr, std::nullopt, nullptr);
    (void)trainer.step();
    return trainer.step().loss;
  }

  TemporaryDirectory scratch_;
  std::unique_ptr<ModelSource> source_;
  Dataset data_;
  TrainOptions options_;
};

TEST_F(HgaTraining, WithAWindowOverEverythingIsDense) {
  options_.model.attention = wide_hga();
  const double wide = second_loss();
  options_.model.attention = narrow_hga();
  EXPECT_NE(second_loss(), wide);
  options_.model.attention = {};
  EXPECT_NEAR(second_loss(), wide, 1e-6);
}

TEST_F(HgaTraining, ThreadsAndWhatIsKeptChangeNoBit) {
  for (const std::int64_t segment : {0, 192}) {
    options_.segment = segment;
    options_.kept = {};
    use_threads(1);
    const double one = second_loss();
    for (const int threads : {2, 3, 8}) {
      use_threads(threads);
      EXPECT_EQ(second_loss(), one) << threads << " threads";
    }
    options_.kept.attention = true;
    EXPECT_EQ(second_loss(), one);
    options_.kept.product_layers = source_->config().L - 1;
    EXPECT_EQ(second_loss(), one);
    ++options_.kept.product_layers;
    EXPECT_EQ(second_loss(), one);
  }
  use_threads(available_cores());
}

TEST_F(HgaTraining, TiersChangeNoBit) {
  options_.model.attention = bank_filling_hga();
  const double expected = second_loss();
  for (const KvTiers& tiers :
       tiers_of(source_->config(), DType::kF32, options_.model.attention, scratch_.path())) {
    options_.model.kv_tiers = tiers;
    options_.kept.attention = false;
    EXPECT_EQ(second_loss(), expected);
    options_.kept.attention = true;
    EXPECT_EQ(second_loss(), expected);
  }
  options_.model.attention = {};
  options_.model.kv_tiers = {};
  const double dense = second_loss();
  options_.model.kv_tiers = KvTiers{.host_bytes = 0, .spill_dir = scratch_.path()};
  EXPECT_EQ(second_loss(), dense);
}

TEST_F(HgaTraining, InChunksOf128KeepsItsBits) {
  options_.segment = 128;
  AttentionOptions long_blocks = in_chunks_of_128(bank_filling_hga());
  long_blocks.hga.block_queries = 128;  // in both pages of a chunk
  for (const AttentionOptions& attention :
       {in_chunks_of_128(bank_filling_hga()), in_chunks_of_128(block_hga()), long_blocks}) {
    options_.model.attention = attention;
    options_.model.kv_tiers = {};
    options_.kept.attention = false;
    use_threads(1);
    const double expected = second_loss();
    use_threads(available_cores());
    options_.kept.attention = true;
    EXPECT_EQ(second_loss(), expected);
    for (const KvTiers& tiers :
         tiers_of(source_->config(), DType::kF32, attention, scratch_.path())) {
      options_.model.kv_tiers = tiers;
      EXPECT_EQ(second_loss(), expected);
    }
  }
}

TEST_F(HgaTraining, InChunksOf128WithAWindowOverEverythingIsDense) {
  options_.segment = 128;
  options_.model.attention = in_chunks_of_128(wide_hga());
  const double wide = second_loss();
  options_.model.attention = {};
  EXPECT_NEAR(second_loss(), wide, 1e-6);
}

TEST_F(HgaTraining, ASegmentThatCutsAChunkIsRefused) {
  options_.model.attention = in_chunks_of_128(narrow_hga());
  options_.segment = 192;
  expect_error([&] { (void)second_loss(); },
               ErrorCode::kInvalidArgument,
               "--segment 192 is not a multiple of --hga.chunk 128: give 256");
  options_.segment = std::numeric_limits<std::int64_t>::max() / 64 * 64;
  expect_error([&] { (void)second_loss(); },
               ErrorCode::kInvalidArgument,
               fmt::format("--segment {} is not a multiple of --hga.chunk 128: give {}",
                           options_.segment,
                           std::int64_t{1} << 31));
}

TEST_F(HgaTraining, Int8HasTheSameBitsFromEveryTier) {
  for (const AttentionOptions& attention :
       {bank_filling_hga(), in_chunks_of_128(bank_filling_hga())}) {
    options_.segment = attention.hga.chunk_tokens == 64 ? 192 : 128;
    options_.model.attention = attention;
    options_.model.kv_tiers = {};
    options_.kept.attention = false;
    options_.model.kv = DType::kBf16;
    const double wide = second_loss();
    options_.model.kv = DType::kI8;
    const double expected = second_loss();
    EXPECT_NE(expected, wide);
    EXPECT_NEAR(expected, wide, 0.1);  // random weights, whose nats jump with any rounding
    for (const KvTiers& tiers :
         tiers_of(source_->config(), DType::kI8, attention, scratch_.path())) {
      options_.model.kv_tiers = tiers;
      options_.kept.attention = false;
      EXPECT_EQ(second_loss(), expected);
      options_.kept.attention = true;
      EXPECT_EQ(second_loss(), expected);
    }
  }
}

TEST_F(HgaTraining, Int8OverAWindowOnEverythingIsDenseOverTiers) {
  options_.model.kv = DType::kI8;
  for (const std::int64_t segment : {0, 192}) {
    options_.segment = segment;
    options_.model.kv_tiers = {};
    options_.model.attention = wide_hga();
    const double wide = second_loss();
    options_.model.attention = {};
    options_.model.kv_tiers = KvTiers{};
    const double dense = second_loss();
    EXPECT_NEAR(dense, wide, 1e-6) << segment;
    options_.model.kv_tiers = KvTiers{.host_bytes = 0, .spill_dir = scratch_.path()};
    EXPECT_EQ(second_loss(), dense) << segment;
    options_.model.kv = DType::kBf16;
    EXPECT_NE(second_loss(), dense) << segment;
    options_.model.kv = DType::kI8;
  }
}

TEST_F(HgaTraining, Int8PlanEqualsTheArenasHighWaterMark) {
  options_.model.kv = DType::kI8;
  Trainer trainer(*source_, options_, Budgets{}, data_, nullptr, std::nullopt, nullptr);
  (void)trainer.step();
  EXPECT_EQ(trainer.device_bytes_peak(), trainer.plan().need(Tier::kDevice));
}

// All but where keys and values lie: that changes no bit.
TEST_F(HgaTraining, ACheckpointIsOfOneValueOfEveryOption) {
  const auto trainer = [&] {
    return std::make_unique<Trainer>(
        *source_, options_, Budgets{}, data_, nullptr, std::nullopt, nullptr);
  };
  const std::filesystem::path saved = scratch_.path() / "saved";
  std::filesystem::create_directory(saved);
  options_.segment = 128;
  options_.model.kv = DType::kBf16;
  trainer()->save(saved, "model");
  const TrainOptions same = options_;
  const auto refuses = [&](std::string_view name,
                           const std::function<void(ModelOptions&)>& change) {
    options_ = same;
    change(options_.model);
    expect_error([&] { trainer()->restore(saved); },
                 ErrorCode::kInvalidArgument,
                 fmt::format("was made with {} ", name));
  };
  refuses("attention", [](auto& model) { model.attention = {}; });
  refuses("attention", [](auto& model) { model.attention.hga.chunk_tokens = 128; });
  refuses("attention", [](auto& model) { ++model.attention.hga.first_chunks; });
  refuses("attention", [](auto& model) { ++model.attention.hga.last_chunks; });
  refuses("attention", [](auto& model) { model.attention.hga.group_tokens = 32; });
  refuses("attention", [](auto& model) { model.attention.hga.block_queries = 32; });
  refuses("attention", [](auto& model) { ++model.attention.hga.topk_chunks; });
  refuses("attention", [](auto& model) { ++model.attention.hga.topk_groups; });
  refuses("attention", [](auto& model) { ++model.attention.hga.union_cap; });
  refuses("attention", [](auto& model) { model.attention.hga.sight = ops::HgaSight::kAsked; });
  refuses("attention", [](auto& model) { model.attention.hga.per_query_head = true; });
  refuses("attention", [](auto& model) { model.attention.summary = ops::HgaSummary::kMean; });
  refuses("attention", [](auto& model) { model.attention = block_hga(); });
  refuses("kv", [](auto& model) { model.kv = DType::kI8; });
  refuses("kv", [](auto& model) { model.kv = DType::kF32; });
  options_ = same;
  options_.model.kv_tiers = KvTiers{.host_bytes = 0, .spill_dir = scratch_.path()};
  options_.kept.attention = true;
  trainer()->restore(saved);
}

TEST_F(HgaTraining, LowersTheLoss) {
  options_.steps = 14;
  Trainer trainer(*source_, options_, Budgets{}, data_, nullptr, std::nullopt, nullptr);
  const double before = trainer.step().loss;
  for (int i = 0; i < 12; ++i) {
    (void)trainer.step();
  }
  EXPECT_LT(trainer.step().loss, before - 0.1);
}

TEST_F(HgaTraining, PlanEqualsTheArenasHighWaterMark) {
  Trainer trainer(*source_, options_, Budgets{}, data_, nullptr, std::nullopt, nullptr);
  (void)trainer.step();
  EXPECT_EQ(trainer.device_bytes_peak(), trainer.plan().need(Tier::kDevice));
}

// A plan whose keys and values are what is too much for host memory.
class HgaPlan : public HgaTraining {
 protected:
  HgaPlan() {
    options_.context = 1 << 18;
    options_.model.kv_tiers = KvTiers{.bank_bytes = 4 * kMiB};
    const Plan all = plan_of(options_.model);
    std::int64_t kept = 0;
    for (const Plan::Row& row : all.rows) {
      kept += row.purpose == "keys and values" && row.tier == Tier::kHost ? row.bytes : 0;
    }
    budgets_.machine_memory = all.need(Tier::kDevice) + all.need(Tier::kHost) - kept / 2;
  }

  [[nodiscard]] Plan plan_of(const ModelOptions& model) const {
    TrainOptions options = options_;
    options.model = model;
    return Trainer::plan(*source_, options, 0);
  }

  [[nodiscard]] std::optional<std::string> spill() const {
    return fitting_spill(
        options_.model, [this](const ModelOptions& model) { return plan_of(model); }, budgets_);
  }

  [[nodiscard]] bool fits_with(std::int64_t host_bytes) const {
    ModelOptions model = options_.model;
    model.kv_tiers = KvTiers{.host_bytes = host_bytes,
                             .spill_dir = "not made",
                             .bank_bytes = options_.model.kv_tiers->bank_bytes};
    return fits(plan_of(model), budgets_);
  }

  Budgets budgets_;
};

TEST_F(HgaPlan, ARefusalNamesTheMostThatHostMemoryMayHold) {
  const std::optional<std::string> named = spill();
  ASSERT_TRUE(named.has_value());
  constexpr std::string_view kBegin = "--kv-host ";
  constexpr std::string_view kEnd = "MiB --spill-dir DIR";
  ASSERT_TRUE(named->starts_with(kBegin) && named->ends_with(kEnd)) << *named;
  const std::int64_t most = std::stoll(named->substr(kBegin.size())) * kMiB;
  EXPECT_GT(most, 0);
  EXPECT_TRUE(fits_with(most));
  EXPECT_FALSE(fits_with(most + 2 * kMiB));
  const auto nearest = nearest_settings(*source_, options_, 0, budgets_);
  EXPECT_NE(std::ranges::find(nearest, *named), nearest.end());
  expect_error([&] { (void)Trainer::plan_within(*source_, options_, budgets_, 0); },
               ErrorCode::kOutOfBudget,
               *named);
  const SessionOptions reading{
      .model = options_.model, .context = options_.context, .block = options_.segment};
  const Plan read = Session::plan(*source_, reading);
  expect_error(
      [&] {
        const Session session(
            *source_,
            reading,
            {.machine_memory = read.need(Tier::kDevice) + read.need(Tier::kHost) - 1},
            {});
      },
      ErrorCode::kOutOfBudget,
      "it fits with --kv-host ");
}

TEST_F(HgaPlan, ARefusalNamesNoDiskThatIsTooSmall) {
  options_.model.kv_tiers->spill_dir = "not made";
  const std::optional<std::string> named = spill();
  ASSERT_TRUE(named.has_value());
  EXPECT_TRUE(named->ends_with("MiB")) << *named;  // the directory is named already
  budgets_.machine_disk = kMiB;
  EXPECT_EQ(spill(), std::nullopt);
  budgets_.machine_disk.reset();
  budgets_.machine_memory = kMiB;
  EXPECT_EQ(spill(), std::nullopt);
  budgets_ = {.device = kMiB};
  EXPECT_EQ(spill(), std::nullopt);
}

}  // namespace
}  // namespace longtune
