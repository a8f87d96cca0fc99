#include "text/jinja_methods.h"

#include "text/expect_refused.h"
#include "text/jinja_fixture.h"

namespace longhaul::text {
namespace {

using testing::HasSubstr;

TEST(JinjaMethods, SplitFollowsPython) {
  EXPECT_EQ(
      rendered("{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a "
               "b  c '.split(none, 1) }}{{ 'a-b-c'.rsplit('-', 1) }}"),
      "['a', 'b', '', 'c']['a', 'b']['a', 'b,c']['a', 'b  c ']['a-b', 'c']");
}

TEST(JinjaMethods, ThinkBlocksComeApart) {
  EXPECT_EQ(
      rendered("{% set c = '<think>\\nwhy\\n</think>\\n\\nA' %}{{ "
               "c.split('</think>')[-1].lstrip('\\n') }}|"
               "{{ c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}"),
      "A|why");
}

TEST(JinjaMethods, TextMethods) {
  EXPECT_EQ(
      rendered("{{ s.startswith('He') }}{{ s.endswith(('x', 'lo')) }}{{ s.replace('l', '1', 1) "
               "}}{{ u.find('☃') }}{{ s.count('l') }}{{ '-'.join(['a', 'b']) }}{{ "
               "'p-a'.removeprefix('p-') }}"),
      "TrueTrueHe1lo72a-ba");
}

TEST(JinjaMethods, MappingMethods) {
  EXPECT_EQ(rendered("{{ d.get('x') }}{{ d.get('q') }}{{ d.get('q', 5) }}{{ d.keys()|list }}{{ "
                     "d.values()|list }}"),
            "1None5['x', 'items'][1, 'key']");
}

TEST(JinjaMethods, MethodsWeLackAreNeverTakenForMissingKeys) {
  for (const char* const source : {"{{ s.format(1) }}", "{{ s.title() }}", "{{ l.append(1) }}",
                                   "{{ d.pop('x') }}", "{% if s.isalpha %}{% endif %}"}) {
    EXPECT_THAT(refusal([source] { rendered(source); }), HasSubstr("is not supported")) << source;
  }
  EXPECT_EQ(rendered("{{ s.nothing }}|{{ d.nothing }}"), "|");
}

}  // namespace
}  // namespace longhaul::text
