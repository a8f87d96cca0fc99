#include "text/bpe_model.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/json_fields.h"

namespace longhaul::text {
namespace {

constexpr std::size_t kCacheSlots = std::size_t{1} << 16U;
constexpr std::size_t kShortWord = 48;  // symbols; below it a scan beats a heap

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U |
         static_cast<std::uint32_t>(right);
}

/// The two halves of a merge, written as "a b" or ["a", "b"]; nothing when it is neither.
std::optional<std::pair<std::string, std::string>> halves_of(const base::Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair{text.substr(0, space), text.substr(space + 1)};
    }
  }
  return std::nullopt;
}

}  // namespace

WordCache::WordCache() : slots_(kCacheSlots) {}

WordCache::Slot* WordCache::slot_of(std::string_view word) {
  if (word.empty() || word.size() > sizeof(Slot::word)) {
    return nullptr;
  }
  return &slots_[XXH3_64bits(word.data(), word.size()) & (kCacheSlots - 1)];
}

bool WordCache::holds(const Slot& slot, std::string_view word) {
  return slot.word_size == word.size() &&
         std::memcmp(slot.word.data(), word.data(), word.size()) == 0;
}

void WordCache::store(Slot& slot, std::string_view word, const std::int32_t* ids,
                      std::size_t count) {
  if (count > slot.ids.size()) {
    return;
  }
  std::copy(word.begin(), word.end(), slot.word.begin());
  slot.word_size = static_cast<std::uint8_t>(word.size());
  std::copy_n(ids, count, slot.ids.begin());
  slot.num_ids = static_cast<std::uint8_t>(count);
}

MergeTable::MergeTable(std::size_t num_merges)
    : entries_(std::bit_ceil(num_merges * 2 + 1)), mask_(entries_.size() - 1) {}

std::size_t MergeTable::start_of(std::uint64_t key) const {
  return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 20U) & mask_;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = start_of(key);
  while (entries_[at].key != kEmpty && entries_[at].key != key) {
    at = (at + 1) & mask_;
  }
  entries_[at] = {key, merge};
}

MergeTable::Merge MergeTable::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = start_of(key);
  while (entries_[at].key != key) {
    if (entries_[at].key == kEmpty) {
      return {};
    }
    at = (at + 1) & mask_;
  }
  return entries_[at].merge;
}

BpeModel BpeModel::parse(const base::Json& spec, const std::string& where) {
  const JsonFields fields(spec, where);
  if (const auto type = fields.optional_string("type"); type && *type != "BPE") {
    throw base::UserError(base::Problem{
        .where = where, .what = "unsupported model", .got = *type, .expected = "BPE"});
  }
  fields.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix",
                     "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                     "merges"});
  if (const base::Json* const dropout = fields.find("dropout");
      dropout != nullptr && !(dropout->is_number() && dropout->get<double>() == 0)) {
    throw base::UserError(base::Problem{.where = where,
                                        .what = "BPE dropout is not supported",
                                        .got = shown(*dropout),
                                        .expected = "null"});
  }
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const auto text = fields.optional_string(key); text && !text->empty()) {
      throw base::UserError(base::Problem{.where = where,
                                          .what = fmt::format("'{}' is not supported", key),
                                          .got = *text,
                                          .expected = "none"});
    }
  }
  if (fields.boolean("byte_fallback", false)) {
    throw base::UserError(base::Problem{
        .where = where, .what = "'byte_fallback' is not supported; only byte-level BPE is"});
  }
  BpeModel model;
  model.fuse_unknown_ = fields.boolean("fuse_unk", false);
  model.ignore_merges_ = fields.boolean("ignore_merges", false);
  model.parse_vocabulary(fields.require("vocab"), where + ".vocab");
  model.parse_merges(fields.require("merges"), where + ".merges");
  if (const auto unknown = fields.optional_string("unk_token")) {
    const auto at = model.vocabulary_.find(*unknown);
    if (at == model.vocabulary_.end()) {
      throw base::UserError(base::Problem{
          .where = where, .what = "'unk_token' is not in the vocabulary", .got = *unknown});
    }
    model.unknown_id_ = at->second;
  }
  return model;
}

void BpeModel::parse_vocabulary(const base::Json& vocabulary, const std::string& where) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    throw base::UserError(base::Problem{.where = where,
                                        .what = "wrong type",
                                        .got = shown(vocabulary),
                                        .expected = "a non-empty object of token: id"});
  }
  vocabulary_.reserve(vocabulary.size());
  std::unordered_set<std::int32_t> seen;
  seen.reserve(vocabulary.size());
  for (const auto& item : vocabulary.items()) {
    const auto id = as_id(item.value(), kMaxTokenId);
    if (!id) {
      throw base::UserError(
          base::Problem{.where = where,
                        .what = fmt::format("token '{}' has an impossible id", item.key()),
                        .got = shown(item.value()),
                        .expected = fmt::format("0 to {}", kMaxTokenId - 1)});
    }
    if (!seen.insert(*id).second) {
      throw base::UserError(base::Problem{
          .where = where,
          .what = fmt::format("id {} belongs to two tokens, one is '{}'", *id, item.key())});
    }
    vocabulary_.emplace(item.key(), *id);
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const char c = static_cast<char>(static_cast<unsigned char>(byte));
    const auto at = vocabulary_.find(to_byte_level({&c, 1}));
    byte_ids_.at(byte) = at == vocabulary_.end() ? -1 : at->second;
  }
}

void BpeModel::parse_merges(const base::Json& merges, const std::string& where) {
  if (!merges.is_array()) {
    throw base::UserError(base::Problem{
        .where = where, .what = "wrong type", .got = shown(merges), .expected = "a list"});
  }
  merges_ = MergeTable(merges.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const base::Json& merge = merges[i];
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    const auto halves = halves_of(merge);
    if (!halves) {
      throw base::UserError(base::Problem{.where = fmt::format("{}[{}]", where, i),
                                          .what = "malformed merge",
                                          .got = shown(merge),
                                          .expected = "\"left right\" or [\"left\", \"right\"]"});
    }
    const auto id_of = [&](const std::string& token) {
      const auto at = vocabulary_.find(token);
      if (at == vocabulary_.end()) {
        throw base::UserError(
            base::Problem{.where = fmt::format("{}[{}]", where, i),
                          .what = "merge of a token that the vocabulary does not have",
                          .got = token});
      }
      return at->second;
    };
    merges_.insert(id_of(halves->first), id_of(halves->second),
                   {rank, id_of(halves->first + halves->second)});
    ++rank;
  }
}

void BpeModel::encode_word(std::string_view word, WordCache& cache,
                           std::vector<std::int32_t>& out) const {
  WordCache::Slot* const slot = cache.slot_of(word);
  if (slot == nullptr) {
    encode_uncached(word, out);
    return;
  }
  if (WordCache::holds(*slot, word)) {
    out.insert(out.end(), slot->ids.begin(), slot->ids.begin() + slot->num_ids);
    return;
  }
  const std::size_t before = out.size();
  encode_uncached(word, out);
  WordCache::store(*slot, word, out.data() + before, out.size() - before);
}

void BpeModel::encode_uncached(std::string_view word, std::vector<std::int32_t>& out) const {
  if (ignore_merges_) {
    if (const auto at = vocabulary_.find(to_byte_level(word)); at != vocabulary_.end()) {
      out.push_back(at->second);
      return;
    }
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  add_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void BpeModel::add_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  // A byte outside the vocabulary becomes the unknown token, or nothing where there is none (as the
  // reference).
  bool after_unknown = false;
  for (const char c : word) {
    const std::int32_t id = byte_ids_.at(static_cast<unsigned char>(c));
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unknown_id_ && !(after_unknown && fuse_unknown_)) {
      symbols.push_back(*unknown_id_);
    }
    after_unknown = id < 0;
  }
}

void BpeModel::merge_short(std::vector<std::int32_t>& symbols) const {
  std::array<MergeTable::Merge, kShortWord> merges;  // merges[i]: of symbols i and i + 1
  std::size_t size = symbols.size();
  for (std::size_t i = 0; i + 1 < size; ++i) {
    merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  }
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) {
      if (merges[i].rank < merges[best].rank) {
        best = i;
      }
    }
    if (merges[best].rank == MergeTable::kNoRank) {
      break;
    }
    symbols[best] = merges[best].id;
    --size;
    for (std::size_t i = best + 1; i < size; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best > 0) {
      merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    }
    if (best + 1 < size) {
      merges[best] = merges_.find(symbols[best], symbols[best + 1]);
    }
  }
  symbols.resize(size);
}

void BpeModel::merge_long(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;  // index of the left symbol
    std::int32_t left_id;
    std::int32_t right_id;
    std::int32_t id;
  };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(later)> queue(later);
  const auto size = static_cast<std::uint32_t>(symbols.size());
  const std::uint32_t none = size;
  std::vector<std::uint32_t> next(size);
  std::vector<std::uint32_t> previous(size);
  const auto offer = [&](std::uint32_t left, std::uint32_t right) {
    const auto merge = merges_.find(symbols[left], symbols[right]);
    if (merge.rank != MergeTable::kNoRank) {
      queue.push({merge.rank, left, symbols[left], symbols[right], merge.id});
    }
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? none : i - 1;
    if (i + 1 < size) {
      offer(i, i + 1);
    }
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const std::uint32_t right = symbols[top.left] == -1 ? none : next[top.left];
    // Merged away or changed since it was offered.
    if (right == none || symbols[top.left] != top.left_id || symbols[right] != top.right_id) {
      continue;
    }
    symbols[top.left] = top.id;
    symbols[right] = -1;
    next[top.left] = next[right];
    if (next[right] != none) {
      previous[next[right]] = top.left;
      offer(top.left, next[right]);
    }
    if (previous[top.left] != none) {
      offer(previous[top.left], top.left);
    }
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

}  // namespace longhaul::text
