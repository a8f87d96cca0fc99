#include "base/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/scratch.h"

namespace longhaul::base {
namespace {

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, ReadsWhatIsValid) {
  JsonFault fault;
  const auto value = try_parse_json(R"( {"b": [1, 2.5, "\u00e9\ud83d\ude00"], "a": null} )", fault);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->at("b").at(2), "é😀");
  EXPECT_TRUE(value->at("a").is_null());
}

TEST(Json, OrderedKeepsTheOrderOfTheFile) {
  EXPECT_EQ(parse_ordered_json(R"({"z":1,"a":2})", "f").dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(parse_json(R"({"z":1,"a":2})", "f").dump(), R"({"a":2,"z":1})");
}

TEST(Json, NamesFileAndLineOfAFault) {
  const std::string message = test::message_of<UserError>(
      [] { parse_json("{\n  \"a\": 1,\n  \"b\": oops\n}", "dir/x.json"); });
  EXPECT_EQ(message.rfind("dir/x.json:3: ", 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(Json, TellsLineAndColumnFromOne) {
  JsonFault fault;
  EXPECT_FALSE(try_parse_json("x", fault));
  EXPECT_EQ(fault.line, 1U);
  EXPECT_EQ(fault.column, 1U);
  EXPECT_FALSE(try_parse_json("[1,\n 2,\n   ?]", fault));
  EXPECT_EQ(fault.line, 3U);
  EXPECT_EQ(fault.column, 4U);
  EXPECT_FALSE(fault.reason.empty());
}

TEST(Json, RefusesWhatTheStandardDoesNotKnow) {
  const std::vector<std::string> bad = {
      "",        " ",         "{",         "[1,]",        "{\"a\":1,}",
      "{'a':1}", "NaN",       "Infinity",  "[1] [2]",     "nul",
      "01",      "1.",        "+1",        "\"\x01\"",    "\"a\nb\"",
      "\"\\x\"", "\"open",    "{\"a\" 1}", "{1:2}",       "// c\n1",
      "[1}",     "\"\\u12\"", "1e99999",   "\"\\uZZZZ\"", std::string("[1]\0", 4)};
  for (const std::string& text : bad) {
    JsonFault fault;
    EXPECT_FALSE(try_parse_json(text, fault)) << text;
    EXPECT_FALSE(try_parse_ordered_json(text, fault)) << text;
    EXPECT_FALSE(fault.reason.empty()) << text;
    EXPECT_THROW(parse_json(text, "f"), UserError) << text;
  }
}

TEST(Json, RefusesLoneSurrogates) {
  for (const char* text : {R"("\ud83d")", R"("\ude00")", R"("\ud83dx")", R"("\ude00\ud83d")",
                           R"("\ud83d\u0041")", R"("\ud83d\ud83d")"}) {
    JsonFault fault;
    EXPECT_FALSE(try_parse_json(text, fault)) << text;
  }
}

TEST(Json, RefusesInvalidUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\""}) {
    JsonFault fault;
    EXPECT_FALSE(try_parse_json(text, fault)) << text;
  }
}

TEST(Json, AcceptsTheDeepestAllowedNestingAndRefusesOneMore) {
  JsonFault fault;
  EXPECT_TRUE(try_parse_json(nested(kMaxJsonDepth), fault));
  EXPECT_FALSE(try_parse_json(nested(kMaxJsonDepth + 1), fault));
  EXPECT_NE(fault.reason.find("512"), std::string::npos);
  EXPECT_FALSE(try_parse_ordered_json(std::string(1'000'000, '['), fault));
  std::string objects;
  for (std::size_t i = 0; i <= kMaxJsonDepth; ++i) {
    objects += "{\"a\":";
  }
  EXPECT_FALSE(try_parse_json(objects, fault));
}

TEST(Json, BracketsInsideTextDoNotCountAsNesting) {
  JsonFault fault;
  EXPECT_TRUE(try_parse_json('"' + std::string(2000, '[') + '"', fault));
  EXPECT_TRUE(try_parse_json(R"(["\"[[[", "\\", "]"])", fault));
}

TEST(Utf8, KnowsTheBordersOfEveryLength) {
  for (const char* text :
       {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "mixed é 文 😀 end"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
  }
  for (const char* text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xe2\x82", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff", "\xf0\x90\x80"}) {
    EXPECT_FALSE(is_valid_utf8(text)) << text;
  }
}

/// Every code point encoded by hand is valid exactly when it is no surrogate.
TEST(Utf8, AcceptsExactlyTheScalarValues) {
  for (std::uint32_t code = 0x800; code <= 0x1FFFFF; code += code < 0x12000 ? 1 : 97) {
    std::string text;
    const auto tail = [&](unsigned shift) {
      text += static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
    };
    if (code < 0x10000) {
      text += static_cast<char>(0xE0U | (code >> 12));
    } else {
      text += static_cast<char>(0xF0U | (code >> 18));
      tail(12);
    }
    tail(6);
    tail(0);
    const bool scalar = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    ASSERT_EQ(is_valid_utf8(text), scalar) << code;
  }
}

}  // namespace
}  // namespace longhaul::base
