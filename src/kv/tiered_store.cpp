#include "kv/tiered_store.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/kv_quantise.h"

namespace longtune {
namespace {

constexpr std::size_t kWriteBuffers = 8;
constexpr std::size_t kReadBuffers = BlockIo::kQueueDepth;  // as many as are in flight

std::int64_t pages_for(std::int64_t tokens) {
  return round_up(tokens, ops::kPageTokens) / ops::kPageTokens;
}

std::int64_t bank_slots(const KvTiers& tiers, std::int64_t banked, std::int64_t page_bytes) {
  const std::int64_t bytes = tiers.bank_bytes.value_or(KvTiers::kUsualBank);
  return std::min(banked, bytes / page_bytes);
}

// Pages that a cell may have before it.
std::int64_t history_pages(const TieredKvStore::Shape& shape) {
  if (shape.keep == KvKeep::kAllLayers) {
    return shape.capacity / ops::kPageTokens;
  }
  const std::int64_t last_cell = (shape.capacity - 1) / shape.cell_tokens * shape.cell_tokens;
  return last_cell / ops::kPageTokens;
}

template <class Byte>
BasicTensorView<Byte> bytes_at(Byte* memory) {
  return {.data = memory};
}

}  // namespace

TieredKvStore::Pin::~Pin() {
  for (const std::int64_t slot : slots_) {
    bank_->unpin(slot);
  }
}

TieredKvStore::Split TieredKvStore::split(const Shape& shape, const KvTiers& tiers) {
  const std::int64_t pages = shape.capacity / ops::kPageTokens;
  const std::int64_t layer_bytes = shape.L * ops::kv_page_bytes(shape.Hkv, shape.D, shape.dtype);
  const std::int64_t host =
      tiers.host_bytes ? std::min(pages, *tiers.host_bytes / layer_bytes) : pages;
  const std::int64_t history = history_pages(shape);
  const std::int64_t spilled = std::max<std::int64_t>(0, history - host);
  return {
      .host = host, .spilled = spilled, .banked = shape.dtype == DType::kI8 ? history : spilled};
}

TieredKvStore::TieredKvStore(const Shape& shape, const KvTiers& tiers, Arena& arena, Plan& plan)
    : shape_(shape),
      page_bytes_(ops::kv_page_bytes(shape.Hkv, shape.D, ops::kv_device_dtype(shape.dtype))),
      stored_bytes_(ops::kv_page_bytes(shape.Hkv, shape.D, shape.dtype)),
      pages_(pages_for(shape.capacity)),
      // A last page that never fills is never closed.
      closed_pages_(shape.capacity / ops::kPageTokens),
      host_pages_(split(shape, tiers).host),
      // A cell may begin inside a page.
      live_pages_(std::min(pages_, pages_for(shape.cell_tokens) + 1)),
      bank_(bank_slots(tiers, split(shape, tiers).banked, page_bytes_)),
      live_table_(arena.is_planning() ? 0 : static_cast<std::size_t>(pages_)),
      host_(arena.is_planning() ? 0 : static_cast<std::size_t>(shape.L * host_pages_)) {
  const std::int64_t spilled = closed_pages_ - host_pages_;
  if (spilled > 0 && !tiers.spill_dir) {
    fail(ErrorCode::kOutOfBudget,
         "kv_store",
         "host memory of {} for keys and values does not hold the {} of {} tokens: give more, or a "
         "--spill-dir for the rest",
         format_bytes(*tiers.host_bytes),
         format_bytes(closed_pages_ * stored_bytes_ * shape.L),
         shape.capacity);
  }
  const std::int64_t live_layers = shape.keep == KvKeep::kAllLayers ? shape.L : 1;
  live_ = arena.take_bytes("keys and values", live_layers * live_pages_ * page_bytes_);
  if (is_int8()) {
    closed_ = arena.take_bytes("keys and values", live_pages_ * page_bytes_);
    int8_ = arena.take("keys and values", DType::kI8, {live_pages_, stored_bytes_});
    closed_table_.resize(live_table_.size());
  }
  if (bank_.slots() > 0) {
    bank_memory_ = arena.take_bytes("bank of keys and values", bank_.slots() * page_bytes_);
  }
  plan.add("keys and values", Tier::kHost, shape.L * host_pages_ * stored_bytes_);
  if (spilled == 0) {
    return;
  }
  const std::int64_t record = round_up(stored_bytes_, AlignedBuffer::kAlignment);
  plan.add("spill buffers",
           Tier::kHost,
           static_cast<std::int64_t>(kWriteBuffers + kReadBuffers) * record);
  plan.add("keys and values", Tier::kDisk, shape.L * spilled * record);
  if (arena.is_planning()) {
    return;
  }
  file_ = std::make_unique<SpillFile>(*tiers.spill_dir, stored_bytes_);
  for (std::size_t i = 0; i < kWriteBuffers; ++i) {
    write_buffers_.emplace_back(record);
  }
  write_tickets_.assign(kWriteBuffers, 0);
  for (std::size_t i = 0; i < kReadBuffers; ++i) {
    read_buffers_.emplace_back(record);
    free_reads_.push_back(i);
  }
}

std::byte* TieredKvStore::live_slot(std::int64_t layer, std::int64_t page) const {
  const std::int64_t first = shape_.keep == KvKeep::kAllLayers ? layer * live_pages_ : 0;
  return live_ + (first + page % live_pages_) * page_bytes_;
}

std::byte* TieredKvStore::closed_slot(std::int64_t page) const {
  return closed_ + page % live_pages_ * page_bytes_;
}

// Of a live page that closed: what goes to another tier.
const std::byte* TieredKvStore::stored_form(std::int64_t layer, std::int64_t page) const {
  return is_int8() ? int8_.rows(page % live_pages_, 1).data : live_slot(layer, page);
}

// A page of bf16 as kv_quantise sees it.
TensorView TieredKvStore::rows_at(std::byte* page) const {
  return {.data = page,
          .shape = {2 * shape_.Hkv * ops::kPageTokens, shape_.D},
          .rank = 2,
          .dtype = DType::kBf16};
}

std::int64_t TieredKvStore::key_of(std::int64_t layer, std::int64_t page) const {
  return layer * pages_ + page;
}

std::int64_t TieredKvStore::record_of(std::int64_t layer, std::int64_t page) const {
  return layer * (closed_pages_ - host_pages_) + page - host_pages_;
}

ops::KvPages TieredKvStore::live(std::int64_t layer, std::int64_t first_position, std::int64_t T) {
  std::ranges::fill(live_table_, nullptr);
  std::ranges::fill(closed_table_, nullptr);
  const std::int64_t end = pages_for(first_position + T);
  for (std::int64_t page = first_position / ops::kPageTokens; page < end; ++page) {
    live_table_[static_cast<std::size_t>(page)] = live_slot(layer, page);
    if (is_int8() && (page + 1) * ops::kPageTokens <= first_position + T) {
      closed_table_[static_cast<std::size_t>(page)] = closed_slot(page);
    }
  }
  return {.pages = live_table_.data(),
          .closed = is_int8() ? closed_table_.data() : nullptr,
          .tokens = first_position + T,
          .Hkv = shape_.Hkv,
          .D = shape_.D,
          .dtype = ops::kv_device_dtype(shape_.dtype)};
}

void TieredKvStore::close(std::int64_t layer, std::int64_t first_position, std::int64_t T) {
  if (!is_int8()) {
    return;
  }
  const std::int64_t end = (first_position + T) / ops::kPageTokens;
  for (std::int64_t page = first_position / ops::kPageTokens; page < end; ++page) {
    const TensorView int8 = int8_.rows(page % live_pages_, 1).reshaped({stored_bytes_});
    ops::kv_quantise({.page = int8, .x = rows_at(live_slot(layer, page))});
    ops::kv_dequantise({.y = rows_at(closed_slot(page)), .page = int8});
  }
}

void TieredKvStore::retire(std::int64_t layer, std::int64_t first_position, std::int64_t T) {
  const std::int64_t end = (first_position + T) / ops::kPageTokens;
  for (std::int64_t page = first_position / ops::kPageTokens; page < end; ++page) {
    if (is_on_disk(page)) {
      write(layer, page);
      continue;
    }
    auto& to = host_[static_cast<std::size_t>(layer * host_pages_ + page)];
    if (!to) {
      to.reset(
          new std::byte[static_cast<std::size_t>(stored_bytes_)]);  // not cleared: written next
    }
    copy_to_host(to.get(), bytes_at(stored_form(layer, page)), stored_bytes_);
    traffic_.to_host += stored_bytes_;
  }
}

void TieredKvStore::write(std::int64_t layer, std::int64_t page) {
  const std::size_t i = next_write_;
  next_write_ = (next_write_ + 1) % kWriteBuffers;
  file_->wait(write_tickets_[i]);
  copy_to_host(write_buffers_[i].data(), bytes_at(stored_form(layer, page)), stored_bytes_);
  write_tickets_[i] = file_->write(record_of(layer, page), write_buffers_[i]);
}

bool TieredKvStore::begin_reading(std::int64_t layer, std::int64_t page) {
  if (free_reads_.empty()) {
    return false;
  }
  const std::size_t buffer = free_reads_.back();
  free_reads_.pop_back();
  reading_.push_back({.key = key_of(layer, page),
                      .buffer = buffer,
                      .ticket = file_->read(record_of(layer, page), read_buffers_[buffer])});
  return true;
}

// Brings a page from another tier to the bank; int8 is read in place (unified memory).
void TieredKvStore::fill_slot(std::int64_t slot, const std::byte* stored) {
  std::byte* const to = bank_memory_ + slot * page_bytes_;
  if (!is_int8()) {
    copy_to_device(bytes_at(to), stored, stored_bytes_);
    return;
  }
  const ConstTensorView int8{
      .data = stored, .shape = {stored_bytes_}, .rank = 1, .dtype = DType::kI8};
  ops::kv_dequantise({.y = rows_at(to), .page = int8});
}

// The oldest page that is being read gets its slot.
void TieredKvStore::finish_reading() {
  const Reading next = reading_.front();
  file_->wait(next.ticket);
  fill_slot(bank_.take(next.key), read_buffers_[next.buffer].data());
  free_reads_.push_back(next.buffer);
  reading_.pop_front();
}

// Makes the page in a slot readable for as long as the pin lives.
void TieredKvStore::hold(std::int64_t slot, std::int64_t page, Pin& pin) {
  bank_.pin(slot);
  pin.slots_.push_back(slot);
  auto& table = is_int8() ? pin.closed_ : pin.table_;
  table[static_cast<std::size_t>(page)] = bank_memory_ + slot * page_bytes_;
}

void TieredKvStore::load_from_host(std::int64_t layer, std::int64_t page, Pin& pin) {
  const std::int64_t slot = bank_.take(key_of(layer, page));
  fill_slot(slot, host_[static_cast<std::size_t>(layer * host_pages_ + page)].get());
  hold(slot, page, pin);
}

void TieredKvStore::load_from_disk(std::int64_t layer,
                                   std::span<const std::int32_t> missing,
                                   Pin& pin) {
  const auto is_being_read = [&](std::int64_t key) {
    return std::ranges::any_of(reading_, [&](const Reading& r) { return r.key == key; });
  };
  std::vector<std::int32_t> unread;
  for (const std::int32_t page : missing) {
    if (!is_being_read(key_of(layer, page))) {
      unread.push_back(page);
    }
  }
  // What was read ahead comes first. A page of it that nobody wants now takes a slot that is not
  // pinned: there is one as long as something is missing.
  std::size_t begun = 0;
  std::size_t loaded = 0;
  while (loaded < missing.size()) {
    while (begun < unread.size() && begin_reading(layer, unread[begun])) {
      ++begun;
    }
    const std::int64_t key = reading_.front().key;
    finish_reading();
    const std::int64_t page = key - key_of(layer, 0);
    if (std::ranges::find(missing, page) != missing.end()) {
      hold(*bank_.find(key), page, pin);
      ++loaded;
    }
  }
}

TieredKvStore::Pin TieredKvStore::pin(std::int64_t layer,
                                      std::span<const std::int32_t> history,
                                      std::int64_t first_position,
                                      std::int64_t T) {
  Pin pin;
  pin.bank_ = &bank_;
  pin.pages_ = live(layer, first_position, T);
  pin.table_ = live_table_;
  pin.closed_ = closed_table_;
  std::vector<std::int32_t> in_host;  // and not in the bank
  std::vector<std::int32_t> on_disk;  // likewise
  std::int64_t banked = 0;
  for (const std::int32_t page : history) {
    if (!is_on_disk(page)) {
      std::byte* const at = host_[static_cast<std::size_t>(layer * host_pages_ + page)].get();
      if (at == nullptr) {
        fail(ErrorCode::kInternal, "kv_store", "page {} of layer {} was never closed", page, layer);
      }
      if (!is_int8()) {
        pin.table_[static_cast<std::size_t>(page)] = at;
        continue;
      }
    }
    ++banked;
    // Hits are touched and pinned before misses push anything out.
    if (const auto slot = bank_.find(key_of(layer, page))) {
      hold(*slot, page, pin);
      ++traffic_.hits;
    } else {
      (is_on_disk(page) ? on_disk : in_host).push_back(page);
      ++traffic_.misses;
    }
  }
  if (banked > bank_.slots()) {
    fail(ErrorCode::kInvalidArgument,
         "kv_store",
         "{} pages do not fit the bank of {}",
         banked,
         bank_.slots());
  }
  for (const std::int32_t page : in_host) {
    load_from_host(layer, page, pin);
  }
  load_from_disk(layer, on_disk, pin);
  pin.pages_.pages = pin.table_.data();
  if (is_int8()) {
    pin.pages_.closed = pin.closed_.data();
  }
  return pin;
}

void TieredKvStore::prefetch(std::int64_t layer, std::span<const std::int32_t> history) {
  for (const std::int32_t page : history) {
    const std::int64_t key = key_of(layer, page);
    const bool wanted =
        is_on_disk(page) && !bank_.find(key) &&
        std::ranges::none_of(reading_, [&](const Reading& r) { return r.key == key; });
    if (wanted && !begin_reading(layer, page)) {
      return;
    }
  }
}

void TieredKvStore::reset() {
  bank_.clear();
  while (!reading_.empty()) {
    file_->wait(reading_.front().ticket);
    free_reads_.push_back(reading_.front().buffer);
    reading_.pop_front();
  }
}

TieredKvStore::Traffic TieredKvStore::traffic() const {
  Traffic result = traffic_;
  if (file_) {
    const SpillFile::Traffic file = file_->traffic();
    result.to_disk = file.written;
    result.from_disk = file.read;
    result.waited = file.waited;
    result.disk_busy = file.busy;
    result.disk_method = file_->method();
    result.disk_direct = file_->is_direct();
  }
  return result;
}

}  // namespace longtune
