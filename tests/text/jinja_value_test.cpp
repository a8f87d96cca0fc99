#include "text/jinja_value.h"

#include <gtest/gtest.h>

namespace longhaul::text::jinja {
namespace {

Value json(const char* text) { return Value::from_json(base::OrderedJson::parse(text)); }

TEST(JinjaValue, PrintsAsPythonDoes) {
  EXPECT_EQ(json("null").str(), "None");
  EXPECT_EQ(json("true").str(), "True");
  EXPECT_EQ(json("1.0").str(), "1.0");
  EXPECT_EQ(json("\"a'b\"").str(), "a'b");
  EXPECT_EQ(json(R"([1, "it's", "q\"'", {"k": null}])").str(),
            "[1, \"it's\", 'q\"\\'', {'k': None}]");
  EXPECT_EQ(json(R"(["\n\u007f\u200b\u00e9\ud83d\ude42"])").str(), "['\\n\\x7f\\u200bé🙂']");
  EXPECT_EQ(Value::list({Value::integer(1)}, true).str(), "(1,)");
  EXPECT_EQ(Value::undefined("x").str(), "");
}

TEST(JinjaValue, FloatsPrintShortest) {
  EXPECT_EQ(float_repr(0.1), "0.1");
  EXPECT_EQ(float_repr(1e16), "1e+16");
  EXPECT_EQ(float_repr(-2.0), "-2.0");
  EXPECT_EQ(float_repr(1e-5), "1e-05");
}

TEST(JinjaValue, TruthFollowsPython) {
  for (const char* const text : {"null", "false", "0", "0.0", "\"\"", "[]", "{}"}) {
    EXPECT_FALSE(json(text).truthy()) << text;
  }
  for (const char* const text : {"true", "-1", "0.5", "\" \"", "[0]", "{\"a\": null}"}) {
    EXPECT_TRUE(json(text).truthy()) << text;
  }
}

TEST(JinjaValue, EqualityCrossesNumberTypesOnly) {
  EXPECT_TRUE(equal(json("1"), json("1.0")));
  EXPECT_TRUE(equal(json("true"), json("1")));
  EXPECT_FALSE(equal(json("1"), json("\"1\"")));
  EXPECT_TRUE(equal(json("{\"a\": [1], \"b\": 2}"), json("{\"b\": 2, \"a\": [1]}")));
  EXPECT_FALSE(equal(json("[]"), json("null")));
}

TEST(JinjaValue, OrderingNeedsOneType) {
  EXPECT_LT(compare(json("\"Z\""), json("\"a\"")), 0);
  EXPECT_GT(compare(json("[1, 3]"), json("[1, 2, 9]")), 0);
  EXPECT_THROW(compare(json("1"), json("\"1\"")), Fault);
  EXPECT_THROW(compare(json("null"), json("null")), Fault);
}

TEST(JinjaValue, MembershipDependsOnTheContainer) {
  EXPECT_TRUE(contains(json("\"abc\""), json("\"bc\"")));
  EXPECT_TRUE(contains(json("{\"k\": 1}"), json("\"k\"")));
  EXPECT_FALSE(contains(json("[1, 2]"), json("3")));
  EXPECT_THROW(contains(json("\"1\""), json("1")), Fault);
  EXPECT_THROW(contains(json("5"), json("1")), Fault);
}

TEST(JinjaValue, JsonTextHasPythonsSeparators) {
  const Value value = json(R"({"b": [1, "é\u0001"], "a": {}})");
  EXPECT_EQ(to_json_text(value, {}), "{\"b\": [1, \"é\\u0001\"], \"a\": {}}");
  EXPECT_EQ(to_json_text(value, {.indent = -1, .ensure_ascii = true, .sort_keys = true}),
            "{\"a\": {}, \"b\": [1, \"\\u00e9\\u0001\"]}");
  EXPECT_THROW(to_json_text(Value::undefined("x"), {}), Fault);
}

TEST(JinjaValue, NestingIsBounded) {
  Value value = Value::list({});
  EXPECT_THROW(
      for (int i = 0; i < 10000; ++i) { value = Value::list({value}); }, Fault);
}

}  // namespace
}  // namespace longhaul::text::jinja
