#include "text/jinja_sequences.h"

#include <gtest/gtest.h>

namespace longhaul::text::jinja {
namespace {

Value letters() { return Value::text("abcdeé"); }

TEST(JinjaSequences, StripTakesUnicodeSpaceOrAGivenSet) {
  EXPECT_EQ(strip("\u3000\x1c a \u00a0", Ends::kBoth), "a");
  EXPECT_EQ(strip("\u200b a", Ends::kLeft), "\u200b a");  // no space to Python
  EXPECT_EQ(strip("éaéb", Ends::kLeft, "éa"), "b");
  EXPECT_EQ(strip("xxx", Ends::kRight, "x"), "");
}

TEST(JinjaSequences, SlicesFollowPython) {
  const auto cut = [](std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                      std::optional<std::int64_t> step) {
    return *slice(letters(), start, stop, step).as_text();
  };
  EXPECT_EQ(cut({}, {}, {}), "abcdeé");
  EXPECT_EQ(cut(-2, {}, {}), "eé");
  EXPECT_EQ(cut({}, {}, -1), "éedcba");
  EXPECT_EQ(cut(4, 0, -2), "ec");
  EXPECT_EQ(cut(10, {}, {}), "");
  EXPECT_EQ(cut(-100, 2, {}), "ab");
  EXPECT_EQ(cut(3, {}, -1), "dcba");
  EXPECT_EQ(cut({}, {}, 100), "a");
  EXPECT_EQ(cut({}, {}, INT64_MIN + 1), "é");
  EXPECT_THROW(cut({}, {}, 0), Fault);
}

TEST(JinjaSequences, ElementsCountFromBothEnds) {
  EXPECT_EQ(element_at(letters(), -1)->str(), "é");
  EXPECT_FALSE(element_at(letters(), 6).has_value());
  EXPECT_FALSE(element_at(letters(), -7).has_value());
}

TEST(JinjaSequences, CaseChangesAsciiOnly) {
  EXPECT_EQ(to_upper("aZ-1"), "AZ-1");
  EXPECT_EQ(capitalize("hELLO w"), "Hello w");
  EXPECT_THROW(to_lower("É"), Fault);
}

TEST(JinjaSequences, ReplaceStopsAtItsCount) {
  EXPECT_EQ(replace_all("aaaa", "aa", "b"), "bb");
  EXPECT_EQ(replace_all("aaaa", "a", "b", 2), "bbaa");
  EXPECT_THROW(replace_all("a", "", "b"), Fault);
}

}  // namespace
}  // namespace longhaul::text::jinja
