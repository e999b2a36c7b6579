#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/definition.h"

namespace longtune {

/// Ranks of pairs of tokens: a hash table with open addressing, read far more often than built.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t key = kNoKey;
    std::uint32_t rank = 0;
    std::int32_t merged = 0;
  };

  /// Where a pair stands twice, the later rank counts, as in the reference.
  explicit MergeTable(const std::vector<TokenizerDefinition::Merge>& merges);

  /// The merge of two tokens, or null.
  [[nodiscard]] const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (entries_[slot].key == key) {
        return &entries_[slot];
      }
      if (entries_[slot].key == kNoKey) {
        return nullptr;
      }
    }
  }

 private:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 20) & mask_;
  }

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

/// Byte-pair encoding of one word: its bytes become symbols; then the pair of lowest rank, the
/// leftmost of its kind, merges until no pair has a rank.
class Bpe {
 public:
  /// `byte_symbols` holds the token of each byte, -1 where the vocabulary has none. Such a byte
  /// becomes `unknown` (one for a run, if `fuse_unknown`) or, without `unknown`, nothing at all.
  struct Options {
    std::array<std::int32_t, 256> byte_symbols{};
    std::optional<std::int32_t> unknown;
    bool fuse_unknown = false;
  };

  Bpe(const std::vector<TokenizerDefinition::Merge>& merges, const Options& options)
      : merges_(merges), options_(options) {}

  /// Buffers that calls of `encode` reuse; one a thread.
  struct Scratch {
    struct Symbol {
      std::int32_t token = 0;
      std::int32_t previous = -1;
      std::int32_t next = -1;
    };

    std::vector<std::int32_t> tokens;
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;  // rank * 2^32 + where the left symbol is; the least on top
  };

  /// Appends the tokens of `word`, in time n log n in its bytes. Throws Error kInvalidArgument for
  /// a word of 2^31 bytes or more.
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& tokens) const;

  /// Bytes without a symbol, in rising order.
  [[nodiscard]] std::vector<std::uint8_t> missing_bytes() const;

 private:
  void to_symbols(std::string_view word, std::vector<std::int32_t>& tokens) const;
  void merge_short(std::vector<std::int32_t>& tokens) const;
  void merge_long(Scratch& scratch) const;
  [[nodiscard]] const MergeTable::Entry* merge_at(const Scratch& scratch, std::int32_t left) const;

  MergeTable merges_;
  Options options_;
};

}  // namespace longtune
