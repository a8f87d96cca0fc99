#include "infer/stop_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace longhaul {
namespace {

using ::testing::ElementsAre;

/// Letters a–d, a space, and one special token.
constexpr const char* kTokenizer = R"({
  "added_tokens": [{"id": 5, "content": "<|im_end|>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
              "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "\u0120": 4}, "merges": []}
})";

TEST(StopRules, KnowsSingleTokensByIdAndOtherStopWordsByText) {
  const text::Tokenizer tokenizer = text::Tokenizer::parse(kTokenizer, "tokenizer.json");
  const std::vector<std::string> words = {"<|im_end|>", "abc", ""};
  const std::vector<std::int64_t> eos = {3, 5, 3};
  const infer::StopRules rules = infer::make_stop_rules(tokenizer, words, eos);
  EXPECT_THAT(rules.ids, ElementsAre(3, 5));
  EXPECT_THAT(rules.texts, ElementsAre("abc"));
  EXPECT_TRUE(rules.ends_at(5));
  EXPECT_FALSE(rules.ends_at(0));
}

TEST(StopTextFilter, PassesEverythingWithoutStopTexts) {
  infer::StopTextFilter filter({});
  EXPECT_EQ(filter.push("ab"), "ab");
  EXPECT_EQ(filter.flush(), "");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopTextFilter, CutsAtAStopTextThatArrivesInPieces) {
  infer::StopTextFilter filter({"<end>"});
  EXPECT_EQ(filter.push("one <"), "one ");
  EXPECT_EQ(filter.push("en"), "");
  EXPECT_EQ(filter.push("d> two"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("three"), "");
  EXPECT_EQ(filter.flush(), "");
}

TEST(StopTextFilter, GivesBackWhatOnlyLookedLikeAStopText) {
  infer::StopTextFilter filter({"<end>", "<e>"});
  EXPECT_EQ(filter.push("a<e"), "a");
  EXPECT_EQ(filter.push("n"), "");
  EXPECT_EQ(filter.push("ough"), "<enough");
  EXPECT_EQ(filter.push("<<e"), "<");
  EXPECT_EQ(filter.flush(), "<e");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopTextFilter, TakesTheStopTextThatComesFirst) {
  infer::StopTextFilter filter({"zz", "y"});
  EXPECT_EQ(filter.push("abyzz"), "ab");
  EXPECT_TRUE(filter.stopped());
}

}  // namespace
}  // namespace longhaul
