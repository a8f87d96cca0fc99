#include "text/pre_tokenizer.h"

#include "text/expect_refused.h"

namespace longhaul::text {
namespace {

using base::Json;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

Json byte_level(bool prefix, bool regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix},
          {"trim_offsets", true},
          {"use_regex", regex}};
}

Json split(const Json& pattern, const std::string& behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

Json sequence(const std::vector<Json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Strings words(const Json& spec, std::string_view text) {
  SplitScratch scratch;
  PreTokenizer::parse(spec, "p").split(text, scratch);
  return {scratch.words.begin(), scratch.words.end()};
}

Strings split_words(const std::string& behavior, std::string_view text, bool invert = false) {
  return words(sequence({split({{"String", "-"}}, behavior, invert), byte_level(false, false)}),
               text);
}

TEST(PreTokenizer, BehavioursAreThoseOfTheDocumentation) {
  // The table in the documentation of Hugging Face's Split.
  const std::string_view text = "the-final--countdown";
  EXPECT_EQ(split_words("Removed", text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split_words("Isolated", text), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split_words("MergedWithPrevious", text), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split_words("MergedWithNext", text), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split_words("Contiguous", text), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split_words("Removed", text, true), (Strings{"-", "-", "-"}));
}

TEST(PreTokenizer, ByteLevelSplitsLikeGpt2) {
  EXPECT_EQ(words(byte_level(false, true), "Hello, it's  2 am\n"),
            (Strings{"Hello", ",", " it", "'s", " ", " 2", " am", "\n"}));
  EXPECT_EQ(words(byte_level(true, true), "Hi"), (Strings{" Hi"}));
  EXPECT_EQ(words(byte_level(true, true), " Hi"), (Strings{" Hi"}));
  EXPECT_EQ(words(byte_level(false, false), "a b"), (Strings{"a b"}));
  EXPECT_TRUE(words(byte_level(true, true), "").empty());
}

TEST(PreTokenizer, DigitsStandAloneOrTogether) {
  const auto digits = [](bool individual) {
    return sequence(
        {{{"type", "Digits"}, {"individual_digits", individual}}, byte_level(false, false)});
  };
  EXPECT_EQ(words(digits(true), "a12Ⅷ½"), (Strings{"a", "1", "2", "Ⅷ", "½"}));
  EXPECT_EQ(words(digits(false), "a12b"), (Strings{"a", "12", "b"}));
}

TEST(PreTokenizer, PrefixSpaceGoesBeforeEveryPiece) {
  EXPECT_EQ(
      words(sequence({split({{"String", "-"}}, "Removed"), byte_level(true, false)}), "a-b- c"),
      (Strings{" a", " b", " c"}));
}

TEST(PreTokenizer, UnknownComponentsAreRefusedByName) {
  const std::vector<std::pair<Json, const char*>> cases = {
      {{{"type", "Metaspace"}}, "Metaspace"},
      {{{"type", "Whitespace"}}, "Whitespace"},
      {sequence({{{"type", "BertPreTokenizer"}}}), "p[0]"},
      {sequence({byte_level(false, true), {{"type", "Digits"}, {"individual_digits", true}}}),
       "after ByteLevel"},
      {sequence({}), "no ByteLevel"},
      {{{"type", "ByteLevel"}, {"use_regex", true}}, "add_prefix_space"},
      {{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"extra", 1}}, "'extra'"},
      {split({{"Regex", "a"}}, "Sideways"), "Sideways"},
      {split({{"Glob", "a"}}, "Isolated"), "'Glob'"},
      {split({{"String", ""}}, "Isolated"), "non-empty"},
      {{{"type", "Sequence"}, {"pretokenizers", 3}}, "not a list"}};
  for (const auto& [spec, part] : cases) {
    EXPECT_THAT(refusal([&spec = spec] { (void)PreTokenizer::parse(spec, "p"); }),
                AllOf(HasSubstr("p"), HasSubstr(part)));
  }
}

}  // namespace
}  // namespace longhaul::text
