#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaArithmetic, DivisionRoundsLikePython) {
  EXPECT_EQ(
      rendered("{{ -7 // 2 }} {{ -7 % 2 }} {{ 7 % -3 }} {{ 7 // -3 }} {{ 6 / 3 }} {{ -7.5 % 2 "
               "}} {{ 7.5 // 2 }}"),
      "-4 1 -2 -3 2.0 0.5 3.0");
}

TEST(JinjaArithmetic, PowersAndMixedNumbers) {
  EXPECT_EQ(rendered("{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1 + f }} {{ t + 1 }} {{ 0.1 + 0.2 }}"),
            "1024 0.5 3.5 2 0.30000000000000004");
}

TEST(JinjaArithmetic, TextsAndListsAddAndRepeat) {
  EXPECT_EQ(
      rendered("{{ 'a' + 'b' }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 2 * [0] }} {{ 'x' * -1 }}|"),
      "ab abab [1, 2] [0, 0] |");
}

TEST(JinjaArithmetic, WhatPythonRefusesIsRefused) {
  for (const char* const source : {"{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ n + 1 }}",
                                   "{{ [1] + (2,) }}", "{{ -s }}", "{{ 's' - 's' }}"}) {
    EXPECT_THAT(refusal([source] { rendered(source); }), HasSubstr("chat_template:1")) << source;
  }
}

TEST(JinjaArithmetic, NumbersBeyond64BitsAreRefused) {
  EXPECT_THAT(refusal([] { rendered("{{ 9223372036854775807 + 1 }}"); }), HasSubstr("64 bits"));
  EXPECT_THAT(refusal([] { rendered("{{ 10 ** 30 }}"); }), HasSubstr("64 bits"));
  EXPECT_THAT(refusal([] { rendered("{{ 'abc' * 99999999 }}"); }), HasSubstr("too large"));
}

}  // namespace
}  // namespace longhaul::text
