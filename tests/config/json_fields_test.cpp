#include "config/json_fields.h"

#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

TEST(KeyLines, FindsKeysOfTheOuterTwoLevels) {
  const auto lines = key_lines(
      "{\n\"a\": {\"b\":\n 1,\n\"c\": {\"d\": 2}},\n"
      "\"e\": [{\"f\": 1},\n \"g\"], \"h\\\"i\": \"x\\\\\",\n\"j\": 0}");
  EXPECT_EQ(lines.at("a"), 2U);
  EXPECT_EQ(lines.at("a.b"), 2U);
  EXPECT_EQ(lines.at("a.c"), 4U);
  EXPECT_EQ(lines.at("e"), 5U);
  EXPECT_EQ(lines.at("j"), 7U);
  EXPECT_EQ(lines.count("d"), 0U);
  EXPECT_EQ(lines.count("g"), 0U);
}

TEST(ShortDump, CutsLongValuesAtACharacterBorder) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "é";
  }
  const std::string cut = short_dump(base::Json(text));
  EXPECT_LE(cut.size(), 84U);
  EXPECT_TRUE(base::is_valid_utf8(cut));
}

TEST(JsonFields, NullCountsAsAbsentAndFaultsAreCollected) {
  const base::Json object = {{"a", nullptr}, {"b", 1.5}, {"c", 7}, {"d", "x"}};
  std::vector<base::Problem> problems;
  const std::map<std::string, std::size_t> lines = {{"b", 3}};
  const JsonFields fields(object, "f.json", lines, problems);
  EXPECT_FALSE(fields.integer("a", 0, 9).has_value());
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(fields.integer("c", 0, 9), 7);
  EXPECT_FALSE(fields.integer("c", 0, 6).has_value());
  EXPECT_FALSE(fields.integer("b", 0, 9).has_value());
  EXPECT_FALSE(fields.number("d", 0, 9).has_value());
  EXPECT_FALSE(fields.boolean("c").has_value());
  ASSERT_EQ(problems.size(), 4U);
  EXPECT_EQ(problems[1].line(),
            "f.json:3: b: impossible value (got 1.5, expected an integer from 0 to 9)");
}

}  // namespace
}  // namespace longhaul::config
