#include "text/jinja_evaluator.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaEvaluator, LoopBodiesHaveTheirOwnVariables) {
  EXPECT_EQ(
      rendered("{% set x = 0 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %} {{ x }}"),
      "11111 0");
  EXPECT_EQ(
      rendered("{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor "
               "%}{{ ns.c }}"),
      "15");
  EXPECT_EQ(rendered("{% if t %}{% set y = 1 %}{% endif %}{{ y }}"), "1");
}

TEST(JinjaEvaluator, LoopVariableCounts) {
  EXPECT_EQ(rendered("{% for x in l[:3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ "
                     "loop.first }}{{ loop.last }}"
                     "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}"),
            "103TrueFalse32 212FalseFalse313 321FalseTrue32 ");
}

TEST(JinjaEvaluator, MacrosSeeTheTopAndTheirArguments) {
  EXPECT_EQ(
      rendered("{% macro m(x, y=2) %}[{{ x }}{{ y }}{{ s }}]{% endmacro %}{{ m(1) }}{{ m(y=3, "
               "x=4) }}{{ m() }}"),
      "[12Hello][43Hello][2Hello]");
  EXPECT_THAT(refusal([] { rendered("{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}"); }),
              HasSubstr("too many"));
  EXPECT_THAT(refusal([] { rendered("{% macro m(x) %}{% endmacro %}{{ m(z=2) }}"); }),
              HasSubstr("'z'"));
}

TEST(JinjaEvaluator, SetBlocksCaptureText) {
  EXPECT_EQ(rendered("{% set q %}<{{ s }}>{% endset %}{{ q }}{{ q|length }}"), "<Hello>7");
}

TEST(JinjaEvaluator, TuplesUnpack) {
  EXPECT_EQ(
      rendered("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% set p, q = 1, 2 %}{{ "
               "p }}{{ q }}"),
      "x=1;items=key;12");
  EXPECT_THAT(refusal([] { rendered("{% for p, q in [[1, 2, 3]] %}{% endfor %}"); }),
              HasSubstr("3 values for 2 names"));
}

TEST(JinjaEvaluator, SlicesCountCharactersAndGoBackward) {
  EXPECT_EQ(rendered("{{ l[::-1] }}{{ l[-2:] }}{{ u[2:4] }}{{ u[-1] }}{{ s[10] }}{{ s[4:0:-2] }}"),
            "[5, 4, 3, 2, 1][4, 5]öß☃ol");
}

TEST(JinjaEvaluator, UndefinedPrintsNothingButCannotBeUsed) {
  EXPECT_EQ(rendered("[{{ missing }}{{ d.nope }}{{ l[9] }}]"), "[]");
  EXPECT_THAT(refusal([] { rendered("{{ missing + 1 }}"); }), HasSubstr("undefined"));
  EXPECT_THAT(refusal([] { rendered("{{ missing() }}"); }), HasSubstr("undefined"));
}

TEST(JinjaEvaluator, TemplatesMayRefuse) {
  EXPECT_THAT(refusal([] { rendered("{{ raise_exception('roles must alternate') }}"); }),
              HasSubstr("roles must alternate"));
  EXPECT_EQ(rendered("{% if not t %}{{ raise_exception('x') }}{% endif %}ok"), "ok");
}

TEST(JinjaEvaluator, DateFollowsTheFormat) {
  const std::string date = rendered("{{ strftime_now('%d %b %Y') }}");
  EXPECT_EQ(date.size(), 11U);
  EXPECT_EQ(date.substr(7, 2), "20");
  EXPECT_EQ(rendered("{{ strftime_now is defined }}"), "True");
}

}  // namespace
}  // namespace longhaul::text
