#include "text/jinja_expression_parser.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaExpressionParser, PrecedenceIsJinjas) {
  EXPECT_EQ(
      rendered(
          "{{ 1 + 2 * 3 - 4 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 1 ~ 2 * 3 }} {{ 8 // 3 * 2 }}"),
      "3 64 4 16 4");
  EXPECT_EQ(rendered("{{ 'a' + ' b ' | trim + 'c' }} {{ not a == 4 }} {{ a > 1 and b > 1 or t }}"),
            "abc True True");
  EXPECT_EQ(rendered("{{ s | length + 1 }} {{ -5 | abs }} {{ not n is none }}"), "6 5 False");
}

TEST(JinjaExpressionParser, InlineConditionsNestAndMayLackElse) {
  EXPECT_EQ(rendered("{{ 1 if n else 2 if t else 3 }}{{ 'x' if n }}|"), "2|");
}

TEST(JinjaExpressionParser, ComparisonsChain) {
  EXPECT_EQ(rendered("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 in l and 9 not in l }}"),
            "True False True");
}

TEST(JinjaExpressionParser, TestsTakeOneArgumentWithoutParentheses) {
  EXPECT_EQ(
      rendered(
          "{{ 9 is divisibleby 3 }} {{ a is eq(3) }} {{ a is not none }} {{ q is defined or t }}"),
      "True True True True");
}

TEST(JinjaExpressionParser, MalformedExpressionsAreRefused) {
  for (const char* const source : {"{{ }}", "{{ a + }}", "{{ a b }}", "{{ [1, 2 }}", "{{ a| }}",
                                   "{{ a is }}", "{{ l[] }}", "{{ f(*l) }}", "{{ f(x=1, 2) }}",
                                   "{{ 99999999999999999999 }}", "{{ a is none is none }}"}) {
    EXPECT_THAT(refusal([source] { rendered(source); }), HasSubstr("chat_template:1: ")) << source;
  }
}

TEST(JinjaExpressionParser, DepthIsLimited) {
  const auto nested = [](int depth) {
    return "{{ " + std::string(static_cast<std::size_t>(depth), '(') + "1" +
           std::string(static_cast<std::size_t>(depth), ')') + " }}";
  };
  EXPECT_EQ(rendered(nested(20)), "1");
  EXPECT_THAT(refusal([&] { rendered(nested(50000)); }), HasSubstr("too deep"));
  std::string chain = "{{ 1";
  for (int i = 0; i < 50000; ++i) {
    chain += " + 1";
  }
  EXPECT_THAT(refusal([&] { rendered(chain + " }}"); }), HasSubstr("too long"));
}

}  // namespace
}  // namespace longhaul::text
