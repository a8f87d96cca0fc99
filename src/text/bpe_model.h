// The model of a byte-level BPE tokenizer: one word as bytes in, token ids out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace longhaul::text {

/// Token ids at or above this are taken for a damaged file.
constexpr std::int32_t kMaxTokenId = 1 << 22;

/// Lets a map of strings be searched by string_view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using StringToId = std::unordered_map<std::string, std::int32_t, StringHash, std::equal_to<>>;

/// Recently encoded words of one thread, each in one slot chosen by its hash; a new word replaces
/// the old one.
class WordCache {
 public:
  WordCache();
  struct Slot {
    std::array<char, 30> word{};
    std::uint8_t word_size = 0;
    std::uint8_t num_ids = 0;
    std::array<std::int32_t, 8> ids{};
  };
  /// The slot for a word, or nullptr when the word is too long to keep.
  Slot* slot_of(std::string_view word);
  static bool holds(const Slot& slot, std::string_view word);
  /// Stores unless there are too many ids.
  static void store(Slot& slot, std::string_view word, const std::int32_t* ids, std::size_t count);

 private:
  std::vector<Slot> slots_;
};

/// Pair of neighbours → (rank, merged id): a flat hash table, since every merge step looks here.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = kNoRank;
    std::int32_t id = 0;
  };
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFFU;

  explicit MergeTable(std::size_t num_merges = 0);
  /// A later entry for the same pair replaces the earlier one.
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  /// rank == kNoRank when the pair does not merge.
  [[nodiscard]] Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Entry {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  [[nodiscard]] std::size_t start_of(std::uint64_t key) const;

  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

class BpeModel {
 public:
  /// Reads the `model` object of tokenizer.json; UserError for settings that byte-level BPE does
  /// not have.
  static BpeModel parse(const base::Json& spec, const std::string& where);

  /// Appends the ids of one word.
  void encode_word(std::string_view word, WordCache& cache, std::vector<std::int32_t>& out) const;

  /// Vocabulary text (`Ġthe`) → id.
  [[nodiscard]] const StringToId& vocabulary() const { return vocabulary_; }

 private:
  void parse_vocabulary(const base::Json& vocabulary, const std::string& where);
  void parse_merges(const base::Json& merges, const std::string& where);
  void encode_uncached(std::string_view word, std::vector<std::int32_t>& out) const;
  void add_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void merge_short(std::vector<std::int32_t>& symbols) const;
  void merge_long(std::vector<std::int32_t>& symbols) const;

  StringToId vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};  // −1: not in the vocabulary
  std::optional<std::int32_t> unknown_id_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
};

}  // namespace longhaul::text
