#include "text/jinja_lexer.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaLexer, BlocksTakeTheirLineAlong) {
  EXPECT_EQ(rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(rendered("  {{ a }}\n"), "  3");
  EXPECT_EQ(rendered("x {% if true %}\ny{% endif %}"), "x y");
  EXPECT_EQ(rendered("  {# note #}\nz"), "z");
}

TEST(JinjaLexer, SignsOverrideTheLineRules) {
  EXPECT_EQ(rendered("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(rendered("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(rendered("a {{- s -}} \n b"), "aHellob");
  EXPECT_EQ(rendered("a {#- x -#} b"), "ab");
}

TEST(JinjaLexer, LineEndsAreUnifiedAndTheLastOneDropped) {
  EXPECT_EQ(rendered("a\r\nb\rc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(rendered("\n"), "");
}

TEST(JinjaLexer, RawTextIsKept) {
  EXPECT_EQ(rendered("{% raw %}{{ a }}{% x %}{% endraw %}"), "{{ a }}{% x %}");
  EXPECT_EQ(rendered("{% raw -%}\n x {%- endraw %}\n y"), "x y");
}

TEST(JinjaLexer, StringsResolveEscapes) {
  EXPECT_EQ(rendered(R"({{ "a\n\t\\\"\u00e9\x41" }}{{ '\'' }}{{ '\d' }})"), "a\n\t\\\"éA'\\d");
}

TEST(JinjaLexer, TagEndsInsideBracketsAndStringsDoNotCount) {
  EXPECT_EQ(rendered("{{ {'a': {'b': 5}}['a']['b'] }}{{ '}}' }}{{ '%}' }}"), "5}}%}");
}

TEST(JinjaLexer, CountsLines) {
  const auto tokens = jinja::tokenize_template("a\n{{ x }}\n\n{% y %}", "t");
  EXPECT_EQ(tokens[1].line, 2U);
  EXPECT_EQ(tokens[5].line, 4U);
}

TEST(JinjaLexer, WhatHasNoEndIsRefused) {
  for (const char* const source : {"{{ a", "{% if a", "{# a", "{% raw %}a", "{{ 'a }}", "{{ (a] }}",
                                   "{{ $ }}", "{{ 12ab }}", "{{ '\\N{DASH}' }}"}) {
    EXPECT_THAT(refusal([source] { jinja::tokenize_template(source, "t"); }), HasSubstr("t:1: "))
        << source;
  }
}

}  // namespace
}  // namespace longhaul::text
