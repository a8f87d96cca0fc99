#include "config/option_value.h"

#include <gtest/gtest.h>

namespace longhaul::config {
namespace {

TEST(OptionValue, NumbersMustFillTheWholeWord) {
  EXPECT_EQ(parse_integer("-12"), -12);
  for (const char* text : {"", " 1", "1 ", "1.0", "1e3", "0x10", "9223372036854775808", "-"}) {
    EXPECT_FALSE(parse_integer(text).has_value()) << text;
  }
  EXPECT_EQ(parse_real("1e-4"), 1e-4);
  EXPECT_EQ(parse_real("3"), 3.0);
  for (const char* text : {"", "1,5", "nan", "inf", "-inf", "1e999", "0.1x"}) {
    EXPECT_FALSE(parse_real(text).has_value()) << text;
  }
}

TEST(OptionValue, BooleansAreTrueOrFalse) {
  EXPECT_EQ(parse_boolean("True"), true);
  EXPECT_EQ(parse_boolean("false"), false);
  EXPECT_FALSE(parse_boolean("yes").has_value());
  EXPECT_FALSE(parse_boolean("").has_value());
}

TEST(OptionValue, MemorySizesHaveDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("40e9"), 40000000000);
  EXPECT_EQ(parse_bytes("40GB"), 40000000000);
  EXPECT_EQ(parse_bytes("40GiB"), 42949672960);
  EXPECT_EQ(parse_bytes("1.5 gib"), 1610612736);
  EXPECT_EQ(parse_bytes("512MiB"), 536870912);
  EXPECT_EQ(parse_bytes("3kB"), 3000);
  EXPECT_EQ(parse_bytes("2TB"), 2000000000000);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("123"), 123);
  for (const char* text : {"", "GB", "40G", "40iB", "-1GB", "1e30GB", "40GBB", "4 0GB", "40XB"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

OptionSpec spec(OptionType type) {
  OptionSpec row{.name = "x", .type = type};
  row.limits = {0, 1, true, true};
  row.choices = {"lora", "full"};
  return row;
}

std::string fault_of(const OptionSpec& row, const std::vector<std::string>& words) {
  std::string fault;
  return check_value(row, words, fault) ? "fine" : fault;
}

TEST(OptionValue, OpenLimitsLeaveOutTheirEnds) {
  EXPECT_EQ(fault_of(spec(OptionType::kReal), {"0.5"}), "fine");
  EXPECT_EQ(fault_of(spec(OptionType::kReal), {"0"}), "out of range");
  EXPECT_EQ(fault_of(spec(OptionType::kReal), {"1"}), "out of range");
  EXPECT_EQ(accepted_text(spec(OptionType::kReal)), "a number above 0 to below 1");
}

TEST(OptionValue, CountsWords) {
  EXPECT_EQ(fault_of(spec(OptionType::kText), {}), "has no value");
  EXPECT_EQ(fault_of(spec(OptionType::kText), {"a", "b"}), "takes one value");
  EXPECT_EQ(fault_of(spec(OptionType::kTextList), {"a", "b"}), "fine");
  EXPECT_EQ(fault_of(spec(OptionType::kTextList), {}), "has no value");
  EXPECT_EQ(fault_of(spec(OptionType::kBoolean), {}), "fine");
  EXPECT_EQ(fault_of(spec(OptionType::kChoice), {"dora"}), "not one of the accepted values");
}

TEST(OptionValue, EveryIntegerOfAListIsChecked) {
  OptionSpec row{.name = "x", .type = OptionType::kIntegerList, .limits = {1, 100}};
  std::string fault;
  const auto value = check_value(row, {"4", "100"}, fault);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->integers, (std::vector<std::int64_t>{4, 100}));
  EXPECT_EQ(fault_of(row, {"4", "many"}), "not an integer");
  EXPECT_EQ(fault_of(row, {"101", "4"}), "out of range");
  EXPECT_EQ(fault_of(row, {}), "has no value");
  EXPECT_EQ(accepted_text(row), "one or more of an integer from 1 to 100");
}

TEST(OptionValue, JsonObjectsHaveOneKindOfValue) {
  std::string fault;
  const auto value =
      check_value(spec(OptionType::kRealMap), {R"({"min_lr": 1e-6, "n": 2})"}, fault);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->real_map.at("min_lr"), 1e-6);
  EXPECT_EQ(value->real_map.at("n"), 2.0);
  EXPECT_EQ(fault_of(spec(OptionType::kTextMap), {R"({"a": 1})"}),
            "not a JSON object of the accepted kind");
  EXPECT_EQ(fault_of(spec(OptionType::kTextMap), {"[]"}), "not a JSON object of the accepted kind");
  EXPECT_NE(fault_of(spec(OptionType::kJson), {"{"}), "fine");
}

}  // namespace
}  // namespace longhaul::config
