#include "text/split_pattern.h"

#include "text/expect_refused.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

std::vector<std::string> matches(const SplitPattern& pattern, std::string_view text) {
  MatchScratch scratch;
  std::vector<ByteRange> ranges;
  pattern.find_all(text, scratch, ranges);
  std::vector<std::string> found;
  for (const ByteRange& range : ranges) {
    found.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return found;
}

using Strings = std::vector<std::string>;

TEST(SplitPattern, FindsEveryMatchFromLeftToRight) {
  EXPECT_EQ(matches(SplitPattern(R"(\p{N}{1,3})", "p"), "12345 6"), (Strings{"123", "45", "6"}));
  EXPECT_EQ(matches(SplitPattern(R"(\s+(?!\S)|\s+)", "p"), "a   b  "), (Strings{"  ", " ", "  "}));
}

TEST(SplitPattern, SeesNulAndControlBytes) {
  const std::string text("a\0b\x01", 4);
  EXPECT_EQ(matches(SplitPattern(R"([^a-z])", "p"), text), (Strings{std::string(1, '\0'), "\x01"}));
}

TEST(SplitPattern, EmptyMatchesMoveOnByOneCharacter) {
  EXPECT_EQ(matches(SplitPattern(R"((?=\p{Lu}))", "p"), "aBçD").size(), 2U);
  EXPECT_EQ(matches(SplitPattern("x*", "p"), "\u00e9x").size(), 2U);
}

TEST(SplitPattern, EmptyTextHasNoWords) {
  EXPECT_TRUE(matches(SplitPattern("a", "p"), "").empty());
  EXPECT_TRUE(matches(SplitPattern("a", "p"), std::string_view()).empty());
}

TEST(SplitPattern, CaseInsensitiveGroupFoldsTheLongS) {
  EXPECT_EQ(matches(SplitPattern("(?i:'s)", "p"), "'s 'S '\u017f"),
            (Strings{"'s", "'S", "'\u017f"}));
}

TEST(SplitPattern, LiteralTextHasNoSpecialCharacters) {
  EXPECT_EQ(matches(SplitPattern::literal("a.*", "p"), "abc a.* a"), (Strings{"a.*"}));
}

TEST(SplitPattern, PatternThatDoesNotCompileIsRefused) {
  EXPECT_THAT(refusal([] { SplitPattern("a{3,2}", "place"); }),
              AllOf(HasSubstr("place"), HasSubstr("does not compile")));
}

}  // namespace
}  // namespace longhaul::text
