#include "text/jinja_filters.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaFilters, TextFilters) {
  EXPECT_EQ(
      rendered("{{ ' a '|trim }}|{{ 'xax'|trim('x') }}|{{ s|upper }}|{{ s|replace('l', 'L', 1) "
               "}}|{{ 'aB'|capitalize }}"),
      "a|a|HELLO|HeLlo|Ab");
  EXPECT_EQ(rendered("{{ u|length }} {{ l|length }} {{ missing|length }}"), "8 5 0");
  EXPECT_EQ(rendered("{{ 'a\n\nb'|indent(2) }}"), "a\n\n  b");
}

TEST(JinjaFilters, DefaultsAndConversions) {
  EXPECT_EQ(
      rendered("{{ missing|default('d') }} {{ n|default('d') }} {{ ''|default('e', true) }} {{ "
               "'4'|int + 1 }} {{ 'x'|int(7) }} {{ '2.5'|float }} {{ 3|string ~ 4 }}"),
      "d None e 5 7 2.5 34");
}

TEST(JinjaFilters, ListFilters) {
  EXPECT_EQ(rendered("{{ l|first }}{{ l|last }}{{ l|join('-') }}{{ l|select('odd')|list }}{{ "
                     "l|reject('gt', 2)|list }}{{ l|reverse|list }}"),
            "151-2-3-4-5[1, 3, 5][1, 2][5, 4, 3, 2, 1]");
  EXPECT_EQ(
      rendered("{{ messages|map(attribute='role')|join(',') }} {{ messages|selectattr('role', "
               "'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'ne', "
               "'user')|map(attribute='content')|list }}"),
      "user,assistant 1 ['Q']");
  EXPECT_EQ(rendered("{{ ['b', 'A', 'c']|sort }}{{ ['a', 'A']|unique|list }}{{ {'b': 1, 'a': "
                     "2}|dictsort }}{{ d|items|list }}"),
            "['A', 'b', 'c']['a'][('a', 2), ('b', 1)][('x', 1), ('items', 'key')]");
}

TEST(JinjaFilters, JsonIsTransformersOwn) {
  EXPECT_EQ(rendered("{{ d|tojson }}{{ '<é\"\n'|tojson }}{{ [1, none, true, 2.0]|tojson }}"),
            "{\"x\": 1, \"items\": \"key\"}\"<é\\\"\\n\"[1, null, true, 2.0]");
  EXPECT_EQ(rendered("{{ {'a': [1], 'b': {}}|tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
}

TEST(JinjaFilters, AttributesComeBeforeKeysAndItemsAfter) {
  EXPECT_EQ(rendered("{{ d['items'] }} {{ d.x }} {{ d.items()|list|length }}"), "key 1 2");
}

TEST(JinjaFilters, UnknownFiltersAndArgumentsAreRefused) {
  EXPECT_THAT(refusal([] { rendered("{{ s|wordwrap }}"); }), HasSubstr("filter 'wordwrap'"));
  EXPECT_THAT(refusal([] { rendered("{{ s|upper(1) }}"); }), HasSubstr("too many arguments"));
  EXPECT_THAT(refusal([] { rendered("{{ l|join(sep=',') }}"); }), HasSubstr("'sep'"));
  EXPECT_THAT(refusal([] { rendered("{{ u|upper }}"); }), HasSubstr("beyond ASCII"));
  EXPECT_EQ(rendered("{% if n %}{{ s|wordwrap }}{% endif %}"), "");
}

}  // namespace
}  // namespace longhaul::text
