#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "device/arena.h"
#include "device/plan.h"
#include "io/spill_file.h"
#include "kv/page_bank.h"
#include "kv/store.h"

namespace longtune {

/// Where closed pages of keys and values are kept.
struct KvTiers {
  std::optional<std::int64_t> host_bytes;          ///< most that host memory holds; all, where none
  std::optional<std::filesystem::path> spill_dir;  ///< for the rest; none: there may be no rest
  /// Of a bank on the device for pages from disk, which is never larger than those of one layer.
  /// None: kUsualBank, and with RoutedAttention more where one block of queries may need more.
  std::optional<std::int64_t> bank_bytes;

  static constexpr std::int64_t kUsualBank = 512 * kMiB;
};

/// Keys and values of one sequence, appended to pages of 64 tokens a layer. The pages of the cell
/// at work are live: on the device, writable. A closed page never changes: it is copied once to
/// host memory or, behind the caller, to a file, and is readable while a Pin holds it. The first
/// pages of every layer are those in host memory, where they are read in place (unified memory);
/// those on disk come through a bank on the device. One thread and one Pin at a time.
class TieredKvStore {
 public:
  struct Shape {
    std::int64_t L = 0;
    std::int64_t Hkv = 0;
    std::int64_t D = 0;
    DType dtype = DType::kBf16;
    std::int64_t capacity = 0;     ///< tokens of a sequence
    std::int64_t cell_tokens = 0;  ///< the most tokens of a cell
    /// kOneLayer: all layers share the live pages; cells then begin at multiples of 64 and a page
    /// that is not full belongs to the last cell.
    KvKeep keep = KvKeep::kAllLayers;
  };

  /// Takes device memory from `arena` and charges host and disk to `plan`; the file is made unless
  /// planning. Throws Error kOutOfBudget where pages are left over for which there is no directory,
  /// kIo where the directory takes no file.
  TieredKvStore(const Shape& shape, const KvTiers& tiers, Arena& arena, Plan& plan);

  /// The pages of a layer with those of the cell [first_position, first_position + T) live, all
  /// others null; valid until the next call of `live`.
  [[nodiscard]] ops::KvPages live(std::int64_t layer, std::int64_t first_position, std::int64_t T);

  /// Copies the pages that the cell closed to where they will be read from.
  void retire(std::int64_t layer, std::int64_t first_position, std::int64_t T);

  /// Readable pages of a layer. Moves, does not copy.
  class Pin {
   public:
    Pin(Pin&&) noexcept = default;
    Pin& operator=(Pin&&) = delete;
    Pin(const Pin&) = delete;
    ~Pin();

    [[nodiscard]] const ops::KvPages& pages() const { return pages_; }

   private:
    friend class TieredKvStore;
    Pin() = default;

    PageBank* bank_ = nullptr;
    std::vector<std::int64_t> slots_;
    std::vector<std::byte*> table_;
    ops::KvPages pages_;
  };

  /// The live pages of the cell with `history`, distinct closed pages from before it. Waits for
  /// those on disk. Throws Error kInvalidArgument where more of them are on disk than the bank has
  /// slots, kIo where reading, or an earlier writing, failed.
  [[nodiscard]] Pin pin(std::int64_t layer,
                        std::span<const std::int32_t> history,
                        std::int64_t first_position,
                        std::int64_t T);

  /// Begins to read pages that a later pin will want, as far as buffers are free. Never waits.
  void prefetch(std::int64_t layer, std::span<const std::int32_t> history);

  /// Forgets the sequence.
  void reset();

  /// Whether a page has to come through the bank.
  [[nodiscard]] bool is_on_disk(std::int64_t page) const { return page >= host_pages_; }

  [[nodiscard]] std::int64_t bank_pages() const { return bank_.slots(); }

  struct Traffic {
    std::int64_t to_host = 0;  ///< bytes of closed pages copied to host memory
    std::int64_t to_disk = 0;  ///< bytes
    std::int64_t from_disk = 0;
    std::int64_t hits = 0;  ///< pages on disk that the bank had
    std::int64_t misses = 0;
    double waited = 0;             ///< seconds that the caller waited for the disk
    double disk_busy = 0;          ///< seconds that the disk was read or written
    std::string_view disk_method;  ///< SpillFile::method(); empty where nothing goes to disk
    bool disk_direct = false;      ///< SpillFile::is_direct()
  };

  [[nodiscard]] Traffic traffic() const;

 private:
  struct Reading {
    std::int64_t key = 0;  ///< of the page
    std::size_t buffer = 0;
    SpillFile::Ticket ticket = 0;
  };

  [[nodiscard]] std::byte* live_slot(std::int64_t layer, std::int64_t page) const;
  [[nodiscard]] std::int64_t key_of(std::int64_t layer, std::int64_t page) const;
  [[nodiscard]] std::int64_t record_of(std::int64_t layer, std::int64_t page) const;
  void write(std::int64_t layer, std::int64_t page);
  bool begin_reading(std::int64_t layer, std::int64_t page);
  void finish_reading();
  void load(std::int64_t layer, std::span<const std::int32_t> missing, Pin& pin);

  Shape shape_;
  std::int64_t page_bytes_;
  std::int64_t pages_;         ///< of a layer
  std::int64_t closed_pages_;  ///< of them, those that can close
  std::int64_t host_pages_;    ///< of a layer, in host memory
  std::int64_t live_pages_;    ///< of a layer
  std::byte* live_ = nullptr;
  std::byte* bank_memory_ = nullptr;
  PageBank bank_;
  std::vector<std::byte*> live_table_;
  std::vector<std::unique_ptr<std::byte[]>> host_;  ///< (L, host_pages_), taken as pages close

  std::vector<AlignedBuffer> write_buffers_;
  std::vector<SpillFile::Ticket> write_tickets_;
  std::size_t next_write_ = 0;
  std::vector<AlignedBuffer> read_buffers_;
  std::vector<std::size_t> free_reads_;
  std::deque<Reading> reading_;  ///< in the order in which they were asked for
  Traffic traffic_;
  std::unique_ptr<SpillFile> file_;  ///< the last member: it ends before its buffers
};

}  // namespace longtune
