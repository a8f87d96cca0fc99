#include "data/row_fields.h"

#include <array>

#include "data_test_tools.h"

namespace longhaul::data {
namespace {

using base::OrderedJson;

constexpr std::array<std::string_view, 3> kNames = {"query", "prompt", "input"};

TEST(RowFields, FindsNamesWithoutRegardToCaseButPrefersTheExactOne) {
  const auto json = OrderedJson::parse(R"({"QUERY": 1, "query": 2, "Other": 3})");
  const RowFields row(json, {});
  EXPECT_EQ(*row.find("query").value, 2);
  EXPECT_EQ(*row.find("other").value, 3);
  EXPECT_EQ(row.find("missing").value, nullptr);
}

TEST(RowFields, TreatsNullAsAbsent) {
  const auto json = OrderedJson::parse(R"({"query": null, "prompt": "p"})");
  RowField field;
  EXPECT_TRUE(RowFields(json, {}).find_one(kNames, "query", field).ok());
  EXPECT_EQ(field.name, "prompt");
}

TEST(RowFields, PrefersTheCanonicalNameAndRefusesToChooseBetweenOthers) {
  RowField field;
  const auto both = OrderedJson::parse(R"({"prompt": "p", "query": "q"})");
  EXPECT_TRUE(RowFields(both, {}).find_one(kNames, "query", field).ok());
  EXPECT_EQ(*field.value, "q");
  const auto others = OrderedJson::parse(R"({"prompt": "p", "input": "i"})");
  const RowFault fault = RowFields(others, {}).find_one(kNames, "query", field);
  EXPECT_EQ(fault.reason, "several columns for the query");
  EXPECT_EQ(fault.detail, "prompt and input; choose with --columns");
}

TEST(RowFields, RenamedColumnsWinAndAreReported) {
  const auto json = OrderedJson::parse(R"({"query": "old", "Ask": "new"})");
  const RowFields row(json, {{"absent", "system"}, {"ask", "query"}});
  EXPECT_EQ(*row.find("query").value, "new");
  EXPECT_EQ(row.columns_seen(), 2U);
  EXPECT_EQ(row.find("ask").value, nullptr);
}

TEST(IsBlank, HoldsForEverythingThatSaysNothing) {
  for (const char* text : {"null", "false", "\"\"", "[]", "{}"}) {
    EXPECT_TRUE(is_blank(OrderedJson::parse(text))) << text;
  }
  for (const char* text : {"true", "0", "\" \"", "[0]", "{\"a\": 1}"}) {
    EXPECT_FALSE(is_blank(OrderedJson::parse(text))) << text;
  }
}

TEST(WrongType, NamesWhatIsThere) {
  EXPECT_EQ(wrong_type("a", OrderedJson(1.5), "text").detail, "a is a number, expected text");
  EXPECT_EQ(wrong_type("a", OrderedJson::array(), "text").detail, "a is a list, expected text");
}

}  // namespace
}  // namespace longhaul::data
