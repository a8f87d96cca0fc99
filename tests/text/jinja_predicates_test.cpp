#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaPredicates, Types) {
  EXPECT_EQ(
      rendered("{{ s is string }}{{ d is mapping }}{{ l is mapping }}{{ l is sequence }}{{ s is "
               "iterable }}{{ a is iterable }}"),
      "TrueTrueFalseTrueTrueFalse");
  EXPECT_EQ(rendered("{{ t is boolean }}{{ t is true }}{{ a is true }}{{ t is integer }}{{ a is "
                     "integer }}{{ f is float }}{{ t is number }}"),
            "TrueTrueFalseFalseTrueTrueTrue");
  EXPECT_EQ(
      rendered(
          "{{ n is none }}{{ missing is none }}{{ missing is defined }}{{ missing is undefined }}"),
      "TrueFalseFalseTrue");
}

TEST(JinjaPredicates, Comparisons) {
  EXPECT_EQ(
      rendered("{{ a is odd }}{{ b is even }}{{ a is eq 3 }}{{ a is gt(2) }}{{ a is in l }}{{ n "
               "is sameas none }}{{ 'AB' is upper }}"),
      "TrueFalseTrueTrueTrueTrueTrue");
}

TEST(JinjaPredicates, UnknownTestsAreRefused) {
  EXPECT_THAT(refusal([] { rendered("{{ a is prime }}"); }), HasSubstr("test 'prime'"));
  EXPECT_THAT(refusal([] { rendered("{{ a is divisibleby }}"); }), HasSubstr("takes 1"));
  EXPECT_THAT(refusal([] { rendered("{{ s is odd }}"); }), HasSubstr("whole number"));
}

}  // namespace
}  // namespace longhaul::text
