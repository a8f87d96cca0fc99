#include "text/jinja.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(Jinja, RendersAChat) {
  EXPECT_EQ(rendered("{% for m in messages %}<{{ m.role }}>{{ m['content'] }}\n{% endfor %}"
                     "{% if add_generation_prompt %}<assistant>{% endif %}"),
            "<user>Q\n<assistant>A\n");
}

TEST(Jinja, RefusalsNamePlaceAndLine) {
  EXPECT_THAT(refusal([] { rendered("a\nb\n{{ s|nope }}"); }),
              AllOf(HasSubstr("chat_template:3: "), HasSubstr("'nope'")));
  EXPECT_THAT(refusal([] { rendered("\n{% if %}"); }), HasSubstr("chat_template:2: "));
  EXPECT_THAT(refusal([] { rendered("{{ missing.x }}"); }), HasSubstr("'missing' is undefined"));
  EXPECT_THAT(refusal([] { rendered("\xC3"); }), HasSubstr("UTF-8"));
}

TEST(Jinja, OneTemplateRendersManyTimes) {
  const JinjaTemplate parsed = JinjaTemplate::parse("{% set a = a + 1 %}{{ a }}", "t");
  EXPECT_EQ(parsed.render(jinja_variables()), "4");
  EXPECT_EQ(parsed.render(jinja_variables()), "4");
}

TEST(Jinja, TemplatesThatRunAwayAreStopped) {
  for (const char* const source : {"{% for i in range(99999) %}{% for j in range(99999) %}{% for k "
                                   "in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
                                   "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                                   "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set "
                                   "ns.x = [ns.x] %}{% endfor %}",
                                   "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) "
                                   "%}{% set ns.x = ns.x * 1000 %}{% endfor %}"}) {
    EXPECT_NE(refusal([source] { rendered(source); }), "") << source;
  }
}

}  // namespace
}  // namespace longhaul::text
