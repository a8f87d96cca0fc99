#include "text/jinja_parser.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaParser, BranchesAndLoops) {
  EXPECT_EQ(rendered("{% if n %}1{% elif a == 3 %}2{% else %}3{% endif %}"), "2");
  EXPECT_EQ(rendered("{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(
      rendered("{% for x in l %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break "
               "%}{% endif %}{{ x }}{% endfor %}"),
      "13");
}

TEST(JinjaParser, GenerationTagPrintsItsBody) {
  EXPECT_EQ(rendered("a{% generation %}b{% endgeneration %}c"), "abc");
}

TEST(JinjaParser, OtherTagsAreRefusedByName) {
  for (const char* const tag : {"include", "import", "from", "extends", "block", "call", "filter",
                                "with", "do", "autoescape", "trans"}) {
    EXPECT_THAT(refusal([tag] { rendered("{% " + std::string(tag) + " x %}"); }),
                HasSubstr("tag '" + std::string(tag) + "' is not supported"));
  }
  EXPECT_THAT(refusal([] { rendered("{% for x in l recursive %}{% endfor %}"); }),
              HasSubstr("recursive"));
}

TEST(JinjaParser, UnbalancedTagsAreRefused) {
  for (const char* const source :
       {"{% if a %}", "{% endif %}", "{% for x in l %}{% endif %}", "{% for x l %}{% endfor %}",
        "{% else %}", "{% break %}", "{% set %}", "{% macro m(a=1, b) %}{% endmacro %}",
        "{% set x %}a", "{% if a %}{% else %}{% else %}{% endif %}", "{% if a b %}{% endif %}"}) {
    EXPECT_THAT(refusal([source] { rendered(source); }), HasSubstr("chat_template:1: ")) << source;
  }
}

TEST(JinjaParser, NestingIsLimited) {
  std::string source;
  for (int i = 0; i < 5000; ++i) {
    source += "{% if a %}";
  }
  EXPECT_THAT(refusal([&] { rendered(source); }), HasSubstr("too deep"));
}

}  // namespace
}  // namespace longhaul::text
