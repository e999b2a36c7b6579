#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>

#include "base/error.h"

namespace longtune {
namespace {

// Below this a linear search for the best pair beats a heap.
constexpr std::size_t kShort = 48;
constexpr std::uint32_t kNoRank = ~std::uint32_t{0};

/// The tokens as a doubly linked list.
void link_symbols(Bpe::Scratch& scratch) {
  scratch.symbols.clear();
  std::int32_t at = 0;
  for (const std::int32_t token : scratch.tokens) {
    scratch.symbols.push_back({token, at - 1, at + 1});
    ++at;
  }
  scratch.symbols.back().next = -1;
}

}  // namespace

MergeTable::MergeTable(const std::vector<TokenizerDefinition::Merge>& merges) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(16, merges.size() * 2));
  entries_.resize(size);
  mask_ = size - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = key_of(merges[rank].left, merges[rank].right);
    std::size_t slot = slot_of(key);
    while (entries_[slot].key != kNoKey && entries_[slot].key != key) {
      slot = (slot + 1) & mask_;
    }
    entries_[slot] = {key, static_cast<std::uint32_t>(rank), merges[rank].merged};
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& tokens) const {
  if (word.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(ErrorCode::kInvalidArgument, "tokenizer", "a word of {} bytes: cut it", word.size());
  }
  to_symbols(word, scratch.tokens);
  if (scratch.tokens.size() <= kShort) {
    merge_short(scratch.tokens);
  } else {
    merge_long(scratch);
  }
  tokens.insert(tokens.end(), scratch.tokens.begin(), scratch.tokens.end());
}

std::vector<std::uint8_t> Bpe::missing_bytes() const {
  std::vector<std::uint8_t> result;
  for (std::size_t byte = 0; byte < options_.byte_symbols.size(); ++byte) {
    if (options_.byte_symbols[byte] < 0) {
      result.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  return result;
}

void Bpe::to_symbols(std::string_view word, std::vector<std::int32_t>& tokens) const {
  tokens.clear();
  bool after_unknown = false;
  for (const char c : word) {
    const std::int32_t token = options_.byte_symbols[static_cast<std::uint8_t>(c)];
    if (token >= 0) {
      tokens.push_back(token);
    } else if (options_.unknown && !(after_unknown && options_.fuse_unknown)) {
      tokens.push_back(*options_.unknown);
    }
    after_unknown = token < 0;
  }
}

void Bpe::merge_short(std::vector<std::int32_t>& tokens) const {
  if (tokens.size() < 2) {
    return;
  }
  std::array<std::uint32_t, kShort> ranks{};  // ranks[i]: of tokens i and i + 1
  std::array<std::int32_t, kShort> merged{};
  std::size_t pairs = tokens.size() - 1;
  const auto look_up = [&](std::size_t i) {
    const MergeTable::Entry* entry = merges_.find(tokens[i], tokens[i + 1]);
    ranks[i] = entry == nullptr ? kNoRank : entry->rank;
    merged[i] = entry == nullptr ? 0 : entry->merged;
  };
  for (std::size_t i = 0; i < pairs; ++i) {
    look_up(i);
  }
  while (pairs > 0) {
    const auto begin = ranks.begin();
    const auto best = std::min_element(begin, begin + static_cast<std::ptrdiff_t>(pairs));
    if (*best == kNoRank) {
      return;
    }
    const auto at = best - begin;
    tokens[static_cast<std::size_t>(at)] = merged[static_cast<std::size_t>(at)];
    tokens.erase(tokens.begin() + at + 1);
    std::copy(best + 1, begin + static_cast<std::ptrdiff_t>(pairs), best);
    std::copy(merged.begin() + at + 1,
              merged.begin() + static_cast<std::ptrdiff_t>(pairs),
              merged.begin() + at);
    --pairs;
    const auto i = static_cast<std::size_t>(at);
    if (i > 0) {
      look_up(i - 1);
    }
    if (i < pairs) {
      look_up(i);
    }
  }
}

const MergeTable::Entry* Bpe::merge_at(const Scratch& scratch, std::int32_t left) const {
  const auto& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  if (symbol.next < 0) {
    return nullptr;
  }
  return merges_.find(symbol.token, scratch.symbols[static_cast<std::size_t>(symbol.next)].token);
}

void Bpe::merge_long(Scratch& scratch) const {
  constexpr std::int32_t kGone = -1;  // the token of a symbol that went into its left neighbour
  link_symbols(scratch);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto add = [&](std::int32_t left) {
    const MergeTable::Entry* entry = merge_at(scratch, left);
    if (entry != nullptr) {
      heap.push_back(std::uint64_t{entry->rank} << 32 | static_cast<std::uint32_t>(left));
    }
    return entry != nullptr;
  };
  const auto push = [&](std::int32_t left) {
    if (left >= 0 && add(left)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    add(static_cast<std::int32_t>(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto at = static_cast<std::int32_t>(heap.back() & 0xFFFFFFFF);
    heap.pop_back();
    // Earlier merges may have taken either symbol; a rank belongs to one pair only.
    const MergeTable::Entry* entry = merge_at(scratch, at);
    if (entry == nullptr || entry->rank != rank) {
      continue;
    }
    auto& left = symbols[static_cast<std::size_t>(at)];
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    left.token = entry->merged;
    left.next = right.next;
    right = {kGone, -1, -1};
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous = at;
    }
    push(at);
    push(left.previous);
  }
  scratch.tokens.clear();
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    scratch.tokens.push_back(symbols[static_cast<std::size_t>(i)].token);
  }
}

}  // namespace longtune
