#include "text/jinja_lexer.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaLexer, BlocksTakeTheirLineAlong) {
  EXPECT_EQ(jinja("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(jinja("  {{ a }}\n"), "  3");
  EXPECT_EQ(jinja("x {% if true %}\ny{% endif %}"), "x y");
  EXPECT_EQ(jinja("  {# note #}\nz"), "z");
}

TEST(JinjaLexer, SignsOverrideTheLineRules) {
  EXPECT_EQ(jinja("a  {%- if true -%}  b  {%- endif -%}  c"), "abc");
  EXPECT_EQ(jinja("  {%+ if true +%}\nb{% endif %}"), "  \nb");
  EXPECT_EQ(jinja("a {{- s -}} \n b"), "aHellob");
  EXPECT_EQ(jinja("a {#- x -#} b"), "ab");
}

TEST(JinjaLexer, LineEndsAreUnifiedAndTheLastOneDropped) {
  EXPECT_EQ(jinja("a\r\nb\rc\n\n"), "a\nb\nc\n");
  EXPECT_EQ(jinja("\n"), "");
}

TEST(JinjaLexer, RawTextIsKept) {
  EXPECT_EQ(jinja("{% raw %}{{ a }}{% x %}{% endraw %}"), "{{ a }}{% x %}");
  EXPECT_EQ(jinja("{% raw -%}\n x {%- endraw %}\n y"), "x y");
}

TEST(JinjaLexer, StringsResolveEscapes) {
  EXPECT_EQ(jinja(R"({{ "a\n\t\\\"\u00e9\x41" }}{{ '\'' }}{{ '\d' }})"), "a\n\t\\\"éA'\\d");
}

TEST(JinjaLexer, TagEndsInsideBracketsAndStringsDoNotCount) {
  EXPECT_EQ(jinja("{{ {'a': {'b': 5}}['a']['b'] }}{{ '}}' }}{{ '%}' }}"), "5}}%}");
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
