#include "text/pattern_translation.h"

#include "text/expect_refused.h"
#include "text/split_pattern.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(PatternTranslation, KnowsThePatternsOfTheFamilies) {
  for (
      const char* const pattern :
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
       R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"}) {
    EXPECT_NO_THROW(SplitPattern(pattern, "p")) << pattern;
  }
}

TEST(PatternTranslation, RefusesByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"(\w+)", R"(the escape \w)"},
      {R"(\bx)", R"(the escape \b)"},
      {R"(\p{Greek})", R"(\p{Greek})"},
      {R"(\p{Cn})", R"(\p{Cn})"},
      {R"([[:alpha:]])", "a class inside a class"},
      {R"([a&&b])", "a class inside a class"},
      {R"([\S])", "a negated escape inside a class"},
      {R"([]a])", "a class that starts with ]"},
      {R"([a)", "an open class"},
      {R"([b-a])", "a malformed range"},
      {R"((a)", "an open group"},
      {R"(a))", "a ) without ("},
      {R"((?<name>a))", "an unknown group"},
      {R"((?i)a)", "an unknown group"},
      {R"((?i:\s))", "a character class in a case-insensitive group"},
      {R"((?i:é))", "a non-ASCII letter"},
      {R"((?i:ss))", "a letter pair with a ligature"},
      {R"(*a)", "a quantifier without"},
      {R"(a{1,2}?)", "a quantifier after {...}"},
      {R"(a{x})", "a malformed {...}"},
      {R"(\x80)", "a malformed hexadecimal escape"},
      {R"(\p{L)", "a malformed property"},
      {R"(a\)", R"(the escape \)"}};
  for (const auto& [pattern, construct] : cases) {
    EXPECT_THAT(refusal([&pattern = pattern] { translate_pattern(pattern, "tokenizer.json: p"); }),
                AllOf(HasSubstr("tokenizer.json: p: "), HasSubstr(construct)))
        << pattern;
  }
}

TEST(PatternTranslation, WhiteSpaceIsSpelledOut) {
  const SplitPattern space(R"(\s)", "p");
  MatchScratch scratch;
  EXPECT_TRUE(space.matches_start("\u0085", scratch));
  EXPECT_TRUE(space.matches_start("\u3000", scratch));
  EXPECT_FALSE(space.matches_start("\u180e", scratch));  // PCRE2 alone would say yes
}

TEST(PatternTranslation, LettersOfNewerUnicodeVersionsCount) {
  const SplitPattern letter(R"(\p{L})", "p");
  MatchScratch scratch;
  EXPECT_TRUE(letter.matches_start("\U00031350", scratch));  // CJK extension H, Unicode 15
  EXPECT_TRUE(letter.matches_start("\U00010D50", scratch));  // Garay, Unicode 16
  EXPECT_FALSE(letter.matches_start("\u0378", scratch));     // unassigned
}

TEST(PatternTranslation, MissingLowerBoundIsZero) {
  EXPECT_EQ(translate_pattern("a{,3}", "p"), "\\x{61}{0,3}");
}

}  // namespace
}  // namespace longhaul::text
