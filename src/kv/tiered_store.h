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
  /// Of a bank on the device for pages from disk, and with int8 for all, which is never larger than
  /// those of one layer. None: kUsualBank; with RoutedAttention what one block of queries may see,
  /// and no less than kUsualBank where pages lie on disk.
  std::optional<std::int64_t> bank_bytes;

  static constexpr std::int64_t kUsualBank = 512 * kMiB;
};

/// Keys and values of one sequence, appended to pages of 64 tokens a layer. The pages of the cell
/// at work are live: on the device, writable. A closed page never changes: it is copied once to
/// host memory or, behind the caller, to a file, and is readable while a Pin holds it. The first
/// pages of every layer are those in host memory, where they are read in place (unified memory);
/// those on disk come through a bank on the device. One thread and one Pin at a time.
///
/// With int8 a page is rounded once, when it closes, and its int8 form moves between the tiers,
/// with which it comes to be half as large. The device has bf16: what is live as it was appended,
/// and beside it, where it closed in this cell, as it will be read from then on; closed pages come
/// through the bank from host memory too.
class TieredKvStore {
 public:
  struct Shape {
    std::int64_t L = 0;
    std::int64_t Hkv = 0;
    std::int64_t D = 0;
    DType dtype = DType::kBf16;    ///< kF32, kBf16 or kI8
    std::int64_t capacity = 0;     ///< tokens of a sequence
    std::int64_t cell_tokens = 0;  ///< the most tokens of a cell
    /// kOneLayer: all layers share the live pages; cells then begin at multiples of cell_tokens,
    /// itself one of 64 unless one cell holds all, and a page that is not full belongs to the last.
    KvKeep keep = KvKeep::kAllLayers;
  };

  /// Takes device memory from `arena` and charges host and disk to `plan`; the file is made unless
  /// planning. Throws Error kOutOfBudget where pages are left over for which there is no directory,
  /// kIo where the directory takes no file.
  TieredKvStore(const Shape& shape, const KvTiers& tiers, Arena& arena, Plan& plan);

  /// The pages of a layer with those of the cell [first_position, first_position + T) live, all
  /// others null; valid until the next call of `live`. Their closed form is that of the layer that
  /// was closed last.
  [[nodiscard]] ops::KvPages live(std::int64_t layer, std::int64_t first_position, std::int64_t T);

  /// Rounds the pages of a layer that the cell closed, once it was written; nothing unless int8.
  void close(std::int64_t layer, std::int64_t first_position, std::int64_t T);

  /// Copies the pages that the cell closed to where they will be read from. With int8 after `close`
  /// of the same layer.
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
    std::vector<std::byte*> table_;   ///< as appended
    std::vector<std::byte*> closed_;  ///< as closed, with int8
    ops::KvPages pages_;
  };

  /// The live pages of the cell with `history`, distinct closed pages from before it. Waits for
  /// those on disk. Throws Error kInvalidArgument where more of them need the bank than it has
  /// slots, kIo where reading, or an earlier writing, failed.
  [[nodiscard]] Pin pin(std::int64_t layer,
                        std::span<const std::int32_t> history,
                        std::int64_t first_position,
                        std::int64_t T);

  /// Begins to read pages that a later pin will want, as far as buffers are free. Never waits.
  void prefetch(std::int64_t layer, std::span<const std::int32_t> history);

  /// Forgets the sequence.
  void reset();

  /// Whether a closed page has to come through the bank.
  [[nodiscard]] bool needs_bank(std::int64_t page) const { return is_int8() || is_on_disk(page); }

  /// Pages of a layer.
  struct Split {
    std::int64_t host = 0;     ///< in host memory
    std::int64_t spilled = 0;  ///< on disk, of those that a cell may have before it
    std::int64_t banked = 0;   ///< of the latter, those that have to come through the bank
  };

  [[nodiscard]] static Split split(const Shape& shape, const KvTiers& tiers);

  [[nodiscard]] std::int64_t bank_pages() const { return bank_.slots(); }

  struct Traffic {
    std::int64_t to_host = 0;  ///< bytes of closed pages copied to host memory
    std::int64_t to_disk = 0;  ///< bytes
    std::int64_t from_disk = 0;
    std::int64_t hits = 0;  ///< pages that need the bank and were there
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

  [[nodiscard]] bool is_int8() const { return shape_.dtype == DType::kI8; }

  [[nodiscard]] bool is_on_disk(std::int64_t page) const { return page >= host_pages_; }

  [[nodiscard]] std::byte* live_slot(std::int64_t layer, std::int64_t page) const;
  [[nodiscard]] std::byte* closed_slot(std::int64_t page) const;
  [[nodiscard]] const std::byte* stored_form(std::int64_t layer, std::int64_t page) const;
  [[nodiscard]] TensorView rows_at(std::byte* page) const;
  void fill_slot(std::int64_t slot, const std::byte* stored);
  [[nodiscard]] std::int64_t key_of(std::int64_t layer, std::int64_t page) const;
  [[nodiscard]] std::int64_t record_of(std::int64_t layer, std::int64_t page) const;
  void write(std::int64_t layer, std::int64_t page);
  bool begin_reading(std::int64_t layer, std::int64_t page);
  void finish_reading();
  void load_from_host(std::int64_t layer, std::int64_t page, Pin& pin);
  void load_from_disk(std::int64_t layer, std::span<const std::int32_t> missing, Pin& pin);
  void hold(std::int64_t slot, std::int64_t page, Pin& pin);

  Shape shape_;
  std::int64_t page_bytes_;    ///< on the device
  std::int64_t stored_bytes_;  ///< of a page in the other tiers
  std::int64_t pages_;         ///< of a layer
  std::int64_t closed_pages_;  ///< of them, those that can close
  std::int64_t host_pages_;    ///< of a layer, in host memory
  std::int64_t live_pages_;    ///< of a layer
  std::byte* live_ = nullptr;
  std::byte* closed_ = nullptr;  ///< (live_pages_) as closed, of one layer, with int8
  TensorView int8_;              ///< (live_pages_, stored_bytes_) the same as it is kept
  std::byte* bank_memory_ = nullptr;
  PageBank bank_;
  std::vector<std::byte*> live_table_;
  std::vector<std::byte*> closed_table_;            ///< with int8
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
