#include "text/bpe_model.h"

#include "text/expect_refused.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using base::Json;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

Json tiny_model() { return tiny_tokenizer_json()["model"]; }

Ids encode(const BpeModel& model, std::string_view word) {
  WordCache cache;
  Ids ids;
  model.encode_word(word, cache, ids);
  Ids again;
  model.encode_word(word, cache, again);
  EXPECT_EQ(ids, again) << "the cached answer differs";
  return ids;
}

TEST(BpeModel, MergesByRankAndLeftToRight) {
  const BpeModel model = BpeModel::parse(tiny_model(), "m");
  EXPECT_EQ(encode(model, "hello"), (Ids{kHello}));
  EXPECT_EQ(encode(model, " hello"), (Ids{kSpaceHello}));
  EXPECT_EQ(encode(model, "lll"), (Ids{kLl, 'l'}));
  EXPECT_EQ(encode(model, "hel"), (Ids{kHe, 'l'}));
  EXPECT_EQ(encode(model, ""), Ids{});
}

TEST(BpeModel, LongWordsMergeLikeShortOnes) {
  const BpeModel model = BpeModel::parse(tiny_model(), "m");
  std::string word;
  Ids expected;
  for (int i = 0; i < 1000; ++i) {
    word += i % 3 == 0 ? "hello" : "lllx";
    const Ids part = i % 3 == 0 ? Ids{kHello} : Ids{kLl, 'l', 'x'};
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(encode(model, word), expected);
}

TEST(BpeModel, MergesMayBePairsOrTexts) {
  Json spec = tiny_model();
  spec["merges"] = {"h e", "l l", "he ll", "hell o", "Ġ hello"};
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), " hello"), (Ids{kSpaceHello}));
}

TEST(BpeModel, IgnoreMergesTakesWholeWordsFromTheVocabulary) {
  Json spec = tiny_model();
  spec["vocab"]["Ġword"] = 300;  // no merges lead there
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), " word"), byte_ids(" word"));
  spec["ignore_merges"] = true;
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), " word"), (Ids{300}));
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), " wordy"), byte_ids(" wordy"));
}

TEST(BpeModel, BytesOutsideTheVocabularyVanishOrBecomeUnknown) {
  Json spec = tiny_model();
  spec["vocab"].erase("x");
  spec["vocab"]["<unk>"] = static_cast<int>('x');
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), "axxb"), (Ids{'a', 'b'}));
  spec["unk_token"] = "<unk>";
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), "axxb"), (Ids{'a', 'x', 'x', 'b'}));
  spec["fuse_unk"] = true;
  EXPECT_EQ(encode(BpeModel::parse(spec, "m"), "axxbx"), (Ids{'a', 'x', 'b', 'x'}));
}

TEST(BpeModel, SettingsItDoesNotHaveAreRefused) {
  const std::vector<std::tuple<const char*, Json, const char*>> cases = {
      {"type", "Unigram", "Unigram"},
      {"dropout", 0.1, "dropout"},
      {"byte_fallback", true, "byte_fallback"},
      {"continuing_subword_prefix", "##", "##"},
      {"end_of_word_suffix", "</w>", "</w>"},
      {"unk_token", "<none>", "<none>"},
      {"vocab", Json::array(), "m.vocab"},
      {"vocab", {{"a", -1}}, "'a'"},
      {"vocab", {{"a", 1}, {"b", 1}}, "id 1"},
      {"vocab", {{"a", 1e9}}, "'a'"},
      {"merges", {"h e", "too many parts"}, "m.merges[1]"},
      {"merges", Json::array({Json::array({"h", "☃"})}), "☃"},
      {"merges", Json::array({Json::array({"h", "q"})}), "hq"},
      {"merges", "x", "a list"},
      {"novel", 1, "'novel'"},
      {"vocab", nullptr, "'vocab' is missing"}};
  for (const auto& [key, value, part] : cases) {
    Json spec = tiny_model();
    spec[key] = value;
    EXPECT_THAT(refusal([&] { (void)BpeModel::parse(spec, "m"); }), HasSubstr(part)) << key;
  }
}

TEST(MergeTable, LaterEntriesReplaceEarlierOnes) {
  MergeTable table(2);
  table.insert(1, 2, {.rank = 5, .id = 50});
  table.insert(1, 2, {.rank = 9, .id = 90});
  EXPECT_EQ(table.find(1, 2).rank, 9U);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
}

TEST(WordCache, HoldsOnlyTheWordThatWasStored) {
  WordCache cache;
  WordCache::Slot* const slot = cache.slot_of("word");
  ASSERT_NE(slot, nullptr);
  EXPECT_FALSE(WordCache::holds(*slot, "word"));
  const std::int32_t id = 7;
  WordCache::store(*slot, "word", &id, 1);
  EXPECT_TRUE(WordCache::holds(*slot, "word"));
  EXPECT_FALSE(WordCache::holds(*slot, "ward"));
  EXPECT_EQ(cache.slot_of(std::string(31, 'x')), nullptr);
  EXPECT_EQ(cache.slot_of(""), nullptr);
}

}  // namespace
}  // namespace longhaul::text
