#include "kv/page_bank.h"

#include <algorithm>

#include "base/error.h"

namespace longtune {

PageBank::PageBank(std::int64_t slots) : entries_(static_cast<std::size_t>(slots)) {
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    entries_[static_cast<std::size_t>(slot)].place = order_.insert(order_.end(), slot);
  }
}

std::optional<std::int64_t> PageBank::find(std::int64_t page) {
  const auto found = slot_of_.find(page);
  if (found == slot_of_.end()) {
    return std::nullopt;
  }
  Entry& entry = entries_[static_cast<std::size_t>(found->second)];
  order_.splice(order_.end(), order_, entry.place);
  return found->second;
}

std::int64_t PageBank::take(std::int64_t page) {
  const auto victim = std::ranges::find_if(order_, [this](std::int64_t slot) {
    return entries_[static_cast<std::size_t>(slot)].pins == 0;
  });
  if (victim == order_.end()) {
    fail(ErrorCode::kInternal, "page_bank", "all {} slots are pinned", slots());
  }
  const std::int64_t slot = *victim;
  Entry& entry = entries_[static_cast<std::size_t>(slot)];
  if (entry.page != kNone) {
    slot_of_.erase(entry.page);
  }
  entry.page = page;
  slot_of_[page] = slot;
  order_.splice(order_.end(), order_, entry.place);
  return slot;
}

void PageBank::pin(std::int64_t slot) {
  ++entries_[static_cast<std::size_t>(slot)].pins;
}

void PageBank::unpin(std::int64_t slot) {
  --entries_[static_cast<std::size_t>(slot)].pins;
}

void PageBank::clear() {
  slot_of_.clear();
  for (Entry& entry : entries_) {
    entry.page = kNone;
  }
}

}  // namespace longtune
