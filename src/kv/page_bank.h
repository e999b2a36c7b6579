#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

namespace longtune {

/// Which page lies in which slot of a bank, the least recently used one leaving first. Knows
/// numbers alone; the memory is its owner's.
class PageBank {
 public:
  explicit PageBank(std::int64_t slots);

  [[nodiscard]] std::int64_t slots() const { return static_cast<std::int64_t>(entries_.size()); }

  /// The page's slot, which becomes the most recently used one; nothing where it has none.
  [[nodiscard]] std::optional<std::int64_t> find(std::int64_t page);

  /// A slot for a page that has none: the least recently used one that is not pinned. Throws Error
  /// kInternal where all are pinned.
  [[nodiscard]] std::int64_t take(std::int64_t page);

  /// A slot may be pinned several times; it does not leave until it was unpinned as often.
  void pin(std::int64_t slot);
  void unpin(std::int64_t slot);

  /// Forgets all pages. None may be pinned.
  void clear();

 private:
  static constexpr std::int64_t kNone = -1;

  struct Entry {
    std::int64_t page = kNone;
    std::int64_t pins = 0;
    std::list<std::int64_t>::iterator place;  ///< in order_
  };

  std::vector<Entry> entries_;
  std::list<std::int64_t> order_;  ///< slots, the least recently used one first
  std::unordered_map<std::int64_t, std::int64_t> slot_of_;
};

}  // namespace longtune
