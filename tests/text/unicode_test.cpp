#include "text/unicode.h"

#include <gtest/gtest.h>

namespace longhaul::text {
namespace {

TEST(Unicode, DecodesEveryLengthForwardAndBackward) {
  const std::string text = "a\u00e9\u4e2d\U0001F642";
  const std::vector<char32_t> expected = {'a', 0xE9, 0x4E2D, 0x1F642};
  std::vector<char32_t> forward;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    forward.push_back(point.value);
    at += point.size;
  }
  EXPECT_EQ(forward, expected);
  std::vector<char32_t> backward;
  for (std::size_t end = text.size(); end > 0;) {
    const CodePoint point = code_point_before(text, end);
    backward.insert(backward.begin(), point.value);
    end -= point.size;
  }
  EXPECT_EQ(backward, expected);
}

TEST(Unicode, EncodesWhatItDecodes) {
  for (const char32_t value : {0x00U, 0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFDU, 0x10000U, 0x10FFFFU}) {
    std::string text;
    append_utf8(text, value);
    EXPECT_EQ(code_point_at(text, 0).value, value);
    EXPECT_EQ(code_point_at(text, 0).size, text.size());
  }
}

TEST(Unicode, WhiteSpaceHasNextLineButNoMongolianVowelSeparator) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_TRUE(is_white_space(0x3000));
  EXPECT_TRUE(is_white_space('\v'));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
  EXPECT_FALSE(is_white_space(0x1C));
}

TEST(Unicode, ComposesAsUnicodeSays) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(to_nfc("A\u030a \u212b"), "\u00c5 \u00c5");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // reordered
  EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c");    // Hangul
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");          // composition exclusion
  EXPECT_EQ(to_nfc("plain ASCII"), "plain ASCII");
}

TEST(Unicode, LeavesNewerCombiningMarksWhereTheyStand) {
  // U+1ABF has class 220 since Unicode 13; the reference's tables do not know it, so it blocks reordering.
  EXPECT_EQ(to_nfc("q\u0301\u1abf"), "q\u0301\u1abf");
  // U+11A7 is next to the trailing consonants but none of them.
  EXPECT_EQ(to_nfc("\uac00\u11a7"), "\uac00\u11a7");
}

TEST(Unicode, QuickCheckNeverPromisesTooMuch) {
  EXPECT_TRUE(is_surely_nfc("ASCII, caf\u00e9 \u4e2d\u6587 \uac00"));
  for (const char* const text : {"e\u0301", "\u212b", "\uac00\u11a8", "\u0344"}) {
    EXPECT_FALSE(is_surely_nfc(text)) << text;
  }
}

TEST(Unicode, LossyTextReplacesMaximalParts) {
  EXPECT_EQ(to_utf8_lossy("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(to_utf8_lossy("\xE4\xB8z"), "\uFFFDz");                // one unfinished character
  EXPECT_EQ(to_utf8_lossy("\xF0\x9F\x98"), "\uFFFD");              // at the end
  EXPECT_EQ(to_utf8_lossy("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");  // overlong: no byte fits
  EXPECT_EQ(to_utf8_lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(to_utf8_lossy("\xF5\xC3\xA9"), "\uFFFD\u00e9");
}

TEST(Unicode, CompletePrefixHoldsBackOnlyWhatLaterBytesCanFinish) {
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
  EXPECT_EQ(complete_utf8_prefix("abc"), 3U);
  EXPECT_EQ(complete_utf8_prefix("a\xC3"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xF0\x9F\x98"), 1U);
  EXPECT_EQ(complete_utf8_prefix("a\xF0\x9F\x98\x80"), 5U);
  EXPECT_EQ(complete_utf8_prefix("a\x80"), 2U);      // never valid
  EXPECT_EQ(complete_utf8_prefix("a\xE0\x80"), 3U);  // cannot become valid
}

TEST(Unicode, DeltaIsSortedAndDoesNotOverlap) {
  char32_t last = 0;
  for (const AssignedRange& range : assigned_ranges()) {
    EXPECT_GT(range.first, last);
    EXPECT_GE(range.last, range.first);
    last = range.last;
  }
  EXPECT_GT(assigned_ranges().size(), 100U);
}

}  // namespace
}  // namespace longhaul::text
