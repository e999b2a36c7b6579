#include "kv/tiered_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace longtune {
namespace {

constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kD = 8;
const std::int64_t kPageBytes = ops::kv_page_bytes(kHeads, kD, DType::kF32);

TieredKvStore::Shape shape(KvKeep keep = KvKeep::kOneLayer) {
  return {.L = 3,
          .Hkv = kHeads,
          .D = kD,
          .dtype = DType::kF32,
          .capacity = 20 * 64,
          .cell_tokens = 128,
          .keep = keep};
}

// A store with its own memory; pages are told apart by one number that fills them.
class Memory {
 public:
  Memory(const TieredKvStore::Shape& s, const KvTiers& tiers)
      : arena_(bytes(s, tiers), Arena::Options::from_environment()),
        store_(s, tiers, arena_, plan_) {}

  TieredKvStore& store() { return store_; }

  [[nodiscard]] const Plan& plan() const { return plan_; }

  [[nodiscard]] std::int64_t device_bytes() const { return arena_.high_water(); }

  static std::int64_t bytes(const TieredKvStore::Shape& s, const KvTiers& tiers) {
    Arena planning = Arena::planning();
    Plan plan;
    const TieredKvStore planned(s, tiers, planning, plan);
    return planning.high_water();
  }

  // Writes the cell [first, first + T) of a layer and retires it.
  void append(std::int64_t layer, std::int64_t first, std::int64_t T) {
    const ops::KvPages pages = store_.live(layer, first, T);
    {
      const OperationScope scope("test");
      for (std::int64_t page = first / 64; page * 64 < first + T; ++page) {
        const int value = static_cast<int>(1 + layer * 20 + page);
        std::memset(pages.pages[page], value, static_cast<std::size_t>(kPageBytes));
      }
    }
    store_.retire(layer, first, T);
  }

  // Whether the pin reads as it should.
  void expect_pages(std::int64_t layer,
                    const std::vector<std::int32_t>& history,
                    std::int64_t first,
                    std::int64_t T) {
    const TieredKvStore::Pin pin = store_.pin(layer, history, first, T);
    const OperationScope scope("test");
    for (const std::int32_t page : history) {
      const auto value = static_cast<std::byte>(1 + layer * 20 + page);
      const std::byte* bytes = pin.pages().pages[page];
      ASSERT_NE(bytes, nullptr);
      EXPECT_TRUE(std::all_of(bytes, bytes + kPageBytes, [&](std::byte b) { return b == value; }))
          << "layer " << layer << " page " << page;
    }
    for (std::int64_t page = 0; page < first / 64; ++page) {
      if (std::ranges::find(history, page) == history.end()) {
        EXPECT_EQ(pin.pages().pages[page], nullptr);
      }
    }
  }

 private:
  Plan plan_;
  Arena arena_;
  TieredKvStore store_;
};

// Pages of the host tier, of all layers.
KvTiers tiers_of(std::int64_t host_pages,
                 std::int64_t bank_pages,
                 const std::filesystem::path& dir) {
  return {.host_bytes = host_pages * 3 * kPageBytes,
          .spill_dir = dir,
          .bank_bytes = bank_pages * kPageBytes};
}

TEST(TieredKvStore, GivesBackEveryPageFromEveryTier) {
  const TemporaryDirectory directory;
  for (const KvTiers& tiers : {KvTiers{},
                               tiers_of(20, 0, directory.path()),
                               tiers_of(4, 5, directory.path()),
                               tiers_of(0, 5, directory.path()),
                               tiers_of(0, 20, directory.path())}) {
    Memory memory(shape(), tiers);
    for (std::int64_t first = 0; first < 20 * 64; first += 128) {
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        memory.append(layer, first, 128);
      }
    }
    for (std::uint64_t i = 0; i < 200; ++i) {
      const auto layer = static_cast<std::int64_t>(random_bits(1, i) % 3);
      std::vector<std::int32_t> wanted;
      for (std::uint64_t k = 0; k < 5; ++k) {
        const auto page = static_cast<std::int32_t>(random_bits(2, 5 * i + k) % 18);
        if (std::ranges::find(wanted, page) == wanted.end()) {
          wanted.push_back(page);
        }
      }
      if (i % 3 == 0) {
        memory.store().prefetch((layer + 1) % 3, wanted);
      }
      memory.expect_pages(layer, wanted, 18 * 64, 128);
    }
  }
}

TEST(TieredKvStore, ReadsAPageFromDiskOnceWhileTheBankHasIt) {
  const TemporaryDirectory directory;
  Memory memory(shape(), tiers_of(0, 4, directory.path()));
  memory.append(0, 0, 128);
  memory.append(0, 128, 128);
  memory.expect_pages(0, {0, 1, 2}, 256, 64);
  memory.expect_pages(0, {2, 0}, 256, 64);
  EXPECT_EQ(memory.store().traffic().misses, 3);
  EXPECT_EQ(memory.store().traffic().hits, 2);
  memory.expect_pages(0, {3}, 256, 64);
  memory.expect_pages(0, {1}, 256, 64);  // four fit
  EXPECT_EQ(memory.store().traffic().misses, 4);
  EXPECT_EQ(memory.store().traffic().hits, 3);
}

TEST(TieredKvStore, WhatWasReadAheadInVainIsInNobodysWay) {
  const TemporaryDirectory directory;
  Memory memory(shape(), tiers_of(0, 2, directory.path()));
  memory.append(0, 0, 128);
  memory.append(0, 128, 128);
  memory.expect_pages(0, {0}, 256, 64);
  memory.store().prefetch(0, std::vector<std::int32_t>{1, 2, 3});
  memory.expect_pages(0, {0, 1}, 256, 64);  // both slots are pinned when 2 and 3 arrive
  memory.expect_pages(0, {3, 0}, 256, 64);
}

TEST(TieredKvStore, APageThatIsNotFullStaysLive) {
  Memory memory(shape(KvKeep::kAllLayers), {});
  memory.append(1, 0, 100);
  memory.append(1, 100, 1);
  memory.expect_pages(1, {0}, 101, 1);
  memory.append(1, 101, 60);  // closes page 1
  memory.expect_pages(1, {0, 1}, 161, 1);
  EXPECT_EQ(memory.store().traffic().to_host, 2 * kPageBytes);
}

TEST(TieredKvStore, ForgetsASequence) {
  const TemporaryDirectory directory;
  Memory memory(shape(), tiers_of(0, 4, directory.path()));
  memory.append(0, 0, 128);
  memory.expect_pages(0, {0, 1}, 128, 64);
  memory.store().prefetch(0, std::vector<std::int32_t>{0, 1});
  memory.store().reset();
  memory.append(1, 0, 128);
  memory.append(0, 0, 128);
  memory.expect_pages(0, {0, 1}, 128, 64);
  EXPECT_EQ(memory.store().traffic().misses, 4);
}

TEST(TieredKvStore, SaysHowTheDiskIsUsed) {
  const TemporaryDirectory directory;
  EXPECT_EQ(Memory(shape(), {}).store().traffic().disk_method, "");
  const std::string_view method =
      Memory(shape(), tiers_of(0, 2, directory.path())).store().traffic().disk_method;
  EXPECT_EQ(method, SpillFile(directory.path(), kPageBytes).method());
}

TieredKvStore::Shape int8_shape() {
  TieredKvStore::Shape s = shape();
  s.dtype = DType::kI8;
  return s;
}

// Writes the cell [first, first + 128) of a layer with random values and closes it.
void append_rows(TieredKvStore& store, std::int64_t layer, std::int64_t first) {
  const ops::KvPages pages = store.live(layer, first, 128);
  EXPECT_EQ(pages.dtype, DType::kBf16);
  {
    const OperationScope scope("test");
    for (std::int64_t page = first / 64; page * 64 < first + 128; ++page) {
      auto* values = reinterpret_cast<BFloat16*>(pages.pages[page]);
      for (std::int64_t i = 0; i < 2 * kHeads * 64 * kD; ++i) {
        values[i] = BFloat16(static_cast<float>(random_uniform(5 + layer * 20 + page, i) - 0.5));
      }
    }
  }
  store.close(layer, first, 128);
}

std::vector<std::byte> bytes_of(const std::byte* page) {
  const OperationScope scope("test");
  return {page, page + ops::kv_page_bytes(kHeads, kD, DType::kBf16)};
}

TEST(TieredKvStore, Int8ReadsTheSameFromEveryTierAsWhenItClosed) {
  const TemporaryDirectory directory;
  const std::int64_t stored = ops::kv_page_bytes(kHeads, kD, DType::kI8);
  const std::int64_t banked = ops::kv_page_bytes(kHeads, kD, DType::kBf16);
  const auto tiers = [&](std::int64_t host, std::int64_t bank) {
    return KvTiers{.host_bytes = host * 3 * stored,
                   .spill_dir = directory.path(),
                   .bank_bytes = bank * banked};
  };
  for (const KvTiers& at : {KvTiers{}, tiers(20, 2), tiers(0, 2), tiers(2, 2), tiers(3, 20)}) {
    Memory memory(int8_shape(), at);
    TieredKvStore& store = memory.store();
    std::vector<std::vector<std::byte>> closed;
    for (std::int64_t first = 0; first < 6 * 64; first += 128) {
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        append_rows(store, layer, first);
        const TieredKvStore::Pin pin = store.pin(layer, {}, first, 128);
        for (std::int64_t page = first / 64; page < first / 64 + 2; ++page) {
          closed.push_back(bytes_of(pin.pages().closed[page]));
          EXPECT_NE(closed.back(), bytes_of(pin.pages().pages[page]));
        }
        store.retire(layer, first, 128);
      }
    }
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto layer = static_cast<std::int64_t>(random_bits(1, i) % 3);
      const auto a = static_cast<std::int32_t>(random_bits(2, i) % 6);
      const auto b = static_cast<std::int32_t>((a + 1 + random_bits(3, i) % 5) % 6);
      if (i % 3 == 0) {
        store.prefetch((layer + 1) % 3, std::vector<std::int32_t>{b, a});
      }
      const TieredKvStore::Pin pin = store.pin(layer, std::vector<std::int32_t>{a, b}, 6 * 64, 64);
      for (const std::int32_t page : {a, b}) {
        EXPECT_EQ(pin.pages().pages[page], nullptr);
        EXPECT_EQ(bytes_of(pin.pages().closed[page]),
                  closed[static_cast<std::size_t>(page / 2 * 6 + layer * 2 + page % 2)])
            << "layer " << layer << " page " << page;
      }
    }
  }
}

TEST(TieredKvStore, PlansInt8AsItIsKept) {
  const TemporaryDirectory directory;
  const std::int64_t stored = ops::kv_page_bytes(kHeads, kD, DType::kI8);
  const std::int64_t banked = ops::kv_page_bytes(kHeads, kD, DType::kBf16);
  EXPECT_EQ(stored, 2 * kHeads * 64 * (kD + 4));
  const KvTiers tiers{
      .host_bytes = 4 * 3 * stored, .spill_dir = directory.path(), .bank_bytes = 5 * banked};
  const Memory memory(int8_shape(), tiers);
  EXPECT_EQ(memory.device_bytes(), Memory::bytes(int8_shape(), tiers));
  // Three live pages in both forms and in int8, and the bank.
  EXPECT_EQ(memory.device_bytes(), (2 * 3 + 5) * banked + 3 * stored);
  EXPECT_EQ(memory.plan().need(Tier::kHost), 4 * 3 * stored + 40 * 4096);
  EXPECT_EQ(memory.plan().need(Tier::kDisk), 16 * 3 * 4096);
}

TEST(TieredKvStore, PlansWhatItTakes) {
  const TemporaryDirectory directory;
  const KvTiers tiers = tiers_of(4, 5, directory.path());
  const Memory memory(shape(), tiers);
  EXPECT_EQ(memory.device_bytes(), Memory::bytes(shape(), tiers));
  EXPECT_EQ(memory.device_bytes(), (3 + 5) * kPageBytes);  // live pages and the bank
  EXPECT_EQ(memory.plan().need(Tier::kDisk), 16 * 3 * kPageBytes);
  EXPECT_EQ(memory.plan().need(Tier::kHost), 4 * 3 * kPageBytes + 40 * kPageBytes);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(TieredKvStore, ABankHoldsNoMoreThanOneLayerMayWant) {
  const TemporaryDirectory directory;
  const KvTiers large = tiers_of(4, 100, directory.path());
  const auto slots = [&](const TieredKvStore::Shape& s, const KvTiers& tiers) {
    return Memory(s, tiers).store().bank_pages();
  };
  EXPECT_EQ(slots(shape(KvKeep::kAllLayers), large), 20 - 4);
  EXPECT_EQ(slots(shape(), large), 18 - 4);  // the last cell's two pages are live
  EXPECT_EQ(slots(int8_shape(), {}), 18);
  EXPECT_EQ(slots(shape(), {}), 0);
  TieredKvStore::Shape whole = int8_shape();
  whole.cell_tokens = whole.capacity;
  EXPECT_EQ(slots(whole, {}), 0);
}

TEST(TieredKvStore, SaysWhatDoesNotFit) {
  const TemporaryDirectory directory;
  expect_error(
      [] { Memory memory(shape(), {.host_bytes = 100'000}); },
      ErrorCode::kOutOfBudget,
      "host memory of 98 KiB for keys and values does not hold the 480 KiB of 1280 tokens: "
      "give more, or a --spill-dir for the rest");
  Memory memory(shape(), tiers_of(0, 2, directory.path()));
  memory.append(0, 0, 128);
  memory.append(0, 128, 128);
  expect_error(
      [&] {
        (void)memory.store().pin(0, std::vector<std::int32_t>{0, 1, 2}, 256, 64);
      },
      ErrorCode::kInvalidArgument,
      "3 pages do not fit the bank of 2");
}

}  // namespace
}  // namespace longtune
