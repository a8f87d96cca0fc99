"""Compares the Jinja evaluator with Python's jinja2 (set up as transformers does) on snippets and real templates.

For every snippet and template: the same text, or both refuse. Where only we refuse, the snippet must be listed in
UNSUPPORTED, so that a construct is refused by decision and never rendered wrong.
jinja_oracle.py TEXT_TOOL FOLDER_OF_TEMPLATES
"""

import json
import pathlib
import random
import re
import subprocess
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "a": 3, "b": -7, "f": 2.5, "t": True, "n": None, "s": "Hello, World", "u": "größer ☃ 🙂", "e": "", "w": "  \t x y \n ",
    "l": [1, 2, 3, 4, 5], "ls": ["b", "A", "c", "a"], "el": [], "d": {"x": 1, "y": [1, {"z": "q"}], "items": "shadow", "k-1": 2},
    "ld": [{"name": "n1", "v": 2, "ok": True}, {"name": "n2", "v": 1, "ok": False}, {"name": "n3", "v": 2}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U\n1"}, {"role": "assistant", "content": "<think>\nr\n</think>\n\nA"}],
    "quote": "it's \"q\" \\ \n\t\x07\x7f\u200b", "html": "<a href='x'>&</a>",
}

SNIPPETS = r"""
{{ a }} {{ b }} {{ f }} {{ t }} {{ n }} {{ s }} {{ missing }}|
{{ a + 2 * 3 - 4 }} {{ a / 2 }} {{ b // 2 }} {{ b % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -a }} {{ +a }} {{ a - -1 }}
{{ 1.0 }} {{ 1e3 }} {{ 10 / 4 }} {{ 6 / 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.5 + 1 }} {{ 0.1 + 0.2 }} {{ 100000000000000000.0 * 10 }} {{ 1_000 }}
{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ missing ~ [1, 'x'] }}
{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[::-1] }}{{ s[:-1] }}{{ s[99] }}{{ u[3:8] }}{{ u[-1] }}{{ u[::2] }}{{ s[10:2:-2] }}{{ s[-3:] }}{{ s[5:1] }}
{{ l[1:] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[4:0:-2] }} {{ l[10:] }} {{ l[:100:3] }} {{ l[-100:2] }} {{ l[::-3] }} {{ l[3::-1] }} {{ l[0] }} {{ l[-1] }} {{ l[7] }}
{{ d.x }} {{ d['x'] }} {{ d.y[1].z }} {{ d['k-1'] }} {{ d.nope }} {{ d['nope'] }} {{ d.get('x') }} {{ d.get('q', 5) }} {{ d.get('q') }} {{ d['items'] }}
{{ d.nope.deeper }}
{{ missing.x }}
{{ missing + 'x' }}
{{ missing['x'] }}
{{ s.nope }} {{ l.nope }} {{ a.nope }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }},{% endfor %} {% for k, v in d|items %}{{ k }};{% endfor %} {{ d.keys()|list }} {{ d.values()|list }}
{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }} {% endfor %}
{% for x in l if x % 2 %}{{ x }}:{{ loop.index }}:{{ loop.length }}:{{ loop.last }} {% else %}none{% endfor %}
{% for x in el %}x{% else %}empty{% endfor %} {% for x in missing %}x{% else %}undef{% endfor %}
{% for x in l %}{% for y in ls %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}{{ loop.index }} {% endfor %}
{% for x in l %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for c in 'añ🙂' %}[{{ c }}]{% endfor %} {% for x in 5 %}{% endfor %}
{% for a, b in [[1, 2], (3, 4)] %}{{ a }}-{{ b }} {% endfor %}{{ a }}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in range(3) %}{{ i }}{% endfor %} {{ range(2, 9, 3)|list }} {{ range(5, 0, -2)|list }} {% for x in l %}{{ loop.cycle('o', 'e') }}{% endfor %}
{% set x = 0 %}{% for i in l %}{% set x = x + 1 %}{{ x }}{% endfor %} {{ x }}
{% set ns = namespace(c=0, f=false) %}{% for i in l %}{% set ns.c = ns.c + i %}{% if i == 3 %}{% set ns.f = true %}{% endif %}{% endfor %}{{ ns.c }} {{ ns.f }} {{ ns.nope }} {{ ns['c'] }}
{% set d.x = 5 %}
{% set a = 9 %}{{ a }} {% set a, c = 1, 2 %}{{ a }}{{ c }} {% set q %}block {{ s }}{% endset %}[{{ q }}] {{ q|length }}
{% if a > 2 and not (b > 0) or n %}yes{% elif t %}no{% else %}else{% endif %} {% if el %}x{% elif d %}dict{% endif %} {% if missing %}x{% endif %}
{{ 'yes' if a == 3 else 'no' }} {{ 'x' if false }}| {{ 1 if n else 2 if e else 3 }} {{ (a if t else b) + 1 }}
{{ a == 3 }} {{ a == 3.0 }} {{ t == 1 }} {{ s != 'x' }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ l == [1, 2, 3, 4, 5] }} {{ d == {'x': 1} }} {{ n == none }} {{ (1, 2) == [1, 2] }}
{{ 'a' < 1 }}
{{ 'ell' in s }} {{ 'z' not in s }} {{ 3 in l }} {{ 9 not in l }} {{ 'x' in d }} {{ 'content' in messages[0] }} {{ not 'a' in s }} {{ missing in l }} {{ 'x' in missing }}
{{ 1 in s }}
{{ 1 in 5 }}
{{ a is defined }} {{ missing is defined }} {{ missing is not defined }} {{ n is none }} {{ a is not none }} {{ s is string }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is iterable }} {{ a is iterable }} {{ missing is iterable }}
{{ t is true }} {{ a is true }} {{ t is boolean }} {{ false is false }} {{ a is number }} {{ f is number }} {{ t is number }} {{ a is integer }} {{ t is integer }} {{ f is float }} {{ a is odd }} {{ b is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}
{{ a is eq 3 }} {{ a is equalto 3 }} {{ a is ne(4) }} {{ a is gt 2 }} {{ a is lt(2) }} {{ a is ge 3 }} {{ a is le 1 }} {{ 2 is in l }} {{ n is sameas none }} {{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'aBc' is lower }} {{ raise_exception is callable }}
{{ not a is none }} {{ a is none or b is defined }} {{ s is string and s|length > 3 }} {{ missing is undefined }} {{ d is not mapping }}
{{ w|trim }}| {{ 'xxaxx'|trim('x') }} {{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ missing|length }} {{ e|count }} {{ ' a '|trim|length }}
{{ a|length }}
{{ missing|default('d') }} {{ n|default('d') }} {{ e|default('d', true) }} {{ e|d('q') }} {{ n|default('x', boolean=true) }} {{ missing|default }} {{ missing|default(default_value=4) }}
{{ l|join(', ') }} {{ ls|join }} {{ ld|join('+', attribute='name') }} {{ [1, none, true, 2.0]|join('-') }} {{ ld|join(attribute='name', d='/') }}
{{ s|upper }} {{ s|lower }} {{ 'hELLO wORLD'|capitalize }} {{ a|upper }}
{{ l|first }} {{ l|last }} {{ s|first }} {{ el|first }} {{ u|last }} {{ el|last is defined }}
{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ 'aaa'|replace('aa', 'b') }} {{ a|replace(3, 4) }}
{{ a|string + 'x' }} {{ l|string }} {{ none|string }} {{ '42'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ f|int }} {{ ' 5 '|int }} {{ '2.5'|float }} {{ 'q'|float }} {{ -2.7|int }} {{ '-3'|int }} {{ n|int }} {{ '1e3'|int }}
{{ 'abc'|list }} {{ d|list }} {{ l|list }} {{ (1, 2)|list }} {{ missing|list }}
{{ ld|map(attribute='name')|list }} {{ ls|map('upper')|list }} {{ ld|map(attribute='ok', default='?')|list }} {{ ls|map('replace', 'a', 'z')|join }} {{ [['p', 1]]|map('first')|list }} {{ [{'q': {'r': [5]}}]|map(attribute='q.r.0')|list }}
{{ ld|selectattr('ok')|map(attribute='name')|list }} {{ ld|selectattr('v', 'equalto', 2)|map(attribute='name')|join(',') }} {{ ld|rejectattr('ok')|list|length }} {{ ld|rejectattr('v', 'gt', 1)|list }} {{ ld|selectattr('ok', 'defined')|list|length }}
{{ l|select('odd')|list }} {{ l|reject('gt', 2)|list }} {{ [0, 1, '', 'x', none]|select|list }} {{ [0, 1]|reject|list }} {{ messages|selectattr('role', 'ne', 'system')|list|length }}
{{ ls|sort }} {{ l|sort(reverse=true) }} {{ ls|sort(case_sensitive=true) }} {{ ld|sort(attribute='v')|map(attribute='name')|list }} {{ ['a', 'A', 'b']|unique|list }} {{ l|reverse|list }} {{ s|reverse }} {{ d|dictsort|length }} {{ {'b': 1, 'a': 2}|dictsort }}
{{ b|abs }} {{ (-2.5)|abs }} {{ -1|abs }} {{ 'a\nb\n\nc'|indent }} {{ 'a\nb\n\nc'|indent(2, true) }} {{ 'a\nb'|indent(width='> ', first=True, blank=True) }} {{ 'a\n\nb\n'|indent(1, blank=true) }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ n|tojson }} {{ u|tojson }} {{ quote|tojson }} {{ html|tojson }} {{ t|tojson }} {{ f|tojson }} {{ {}|tojson }} {{ []|tojson }} {{ (1, 'a')|tojson }} {{ 1.0|tojson }}
{{ d|tojson(indent=2) }} {{ ld|tojson(indent=4) }} {{ {'a': [], 'b': {}}|tojson(indent=1) }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ l|tojson(indent=none) }} {{ [[1, [2]], {'q': [3]}]|tojson(indent=0) }}
{{ missing|tojson }}
{{ l }} {{ d }} {{ ['a', "it's", 'q"', u, quote] }} {{ (1,) }} {{ () }} {{ (1, 'x') }} {{ 1, 2 }} {{ [true, none, 1.5] }} {{ {'a': {'b': ()}} }} {{ [missing] }}
{{ w.strip() }}| {{ 'xyx'.strip('x') }} {{ 'xyx'.lstrip('x') }} {{ 'xyx'.rstrip('x') }} {{ '\n\na\n'.lstrip('\n') }}| {{ ' a '.rstrip() }}| {{ 'abc'.strip('cab') }}| {{ 'ñañ'.strip('ñ') }} {{ '\u00a0\x1cx\u2003'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b c'.split(' ', maxsplit=1) }} {{ 'a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a--b--c'.rsplit('--', 1) }} {{ 'a-b'.rsplit('-') }}
{{ messages[2].content.split('</think>')[-1].lstrip('\n') }} {{ messages[2].content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }} {{ messages[-1]['content'].startswith('<think>') }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.upper() }} {{ s.lower() }} {{ 'abC d'.capitalize() }} {{ s.replace('o', '0') }} {{ s.replace('o', '0', 1) }} {{ s.find('W') }} {{ u.find('☃') }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ s.count('l') }} {{ ', '.join(ls) }} {{ '12'.isdigit() }} {{ 'x'.isdigit() }} {{ ' '.isspace() }} {{ 'prefix-a'.removeprefix('prefix-') }} {{ 'a.b'.removesuffix('.b') }} {{ ls.count('a') }}
{{ raise_exception('no way') }}
{% if false %}{{ raise_exception('no way') }}{% endif %}fine
{% macro m(x, y=2, z='d') %}[{{ x }}{{ y }}{{ z }}{{ s }}]{% endmacro %}{{ m(1) }}{{ m(1, z=3) }}{{ m(x=4, y=5) }}{{ m() }} {{ m('q')|length }}
{% macro outer(x) %}{{ inner(x) }}!{% endmacro %}{% macro inner(y) %}<{{ y }}>{% endmacro %}{{ outer(7) }} {% set v = outer(1) %}{{ v ~ v }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(q=2) }}
{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro g() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ g() }}
{% for x in [1] %}{% macro inl() %}{{ x }}{% endmacro %}{{ inl() }}{% endfor %}
{% generation %}kept {{ s }}{% endgeneration %} after
{# comment {{ a }} #}x{#- c -#}  y  {#c#}
{% raw %}{{ not }} {% evaluated %}{# here #}{% endraw %} {%- raw -%}  z  {%- endraw -%}  q
{{ '{{' }} {{ "}}" }} {{ '%}' }} {{ {'a': {'b': 1}}['a'] }} {{ 'a' 'b' "c" }} {{ "tab\there" }} {{ 'nl\nx' }} {{ 'q\'q' }} {{ "back\\slash" }} {{ '\u00e9\x41\U0001F642' }} {{ '\d' }}
{{ true }} {{ True }} {{ none }} {{ None }} {{ false and missing.x }} {{ true or missing.x }} {{ e or 'or' }} {{ s and 5 }} {{ not e }} {{ not not s }}
{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'a' + 'b' }} {{ t + 1 }} {{ 'x' * -1 }}|
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ [1] + (2,) }}
{{ n + 1 }}
{{ -s }}
{{ (1 + 2) * 3 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 10 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ 1 ~ 2 * 3 }} {{ 1 + 2 ~ 3 }} {{ 8 // 3 * 2 }} {{ -5|abs }} {{ 'a'|upper ~ 'b'|upper }} {{ s|length + 1 }} {{ 1 + s|length * 2 }} {{ 3|string ~ 4 }}
{{ nope() }}
{{ s() }}
{{ s.format(1) }}
{{ l.append(1) }}
{{ dict(a=1, b=2) }} {{ dict(d, q=1).q }} {{ namespace(a=1).a }} {{ namespace({'z': 3}).z }}
{% for m in messages %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %} {{ messages|length }} {{ messages[0]['role'] == 'system' }} {{ messages[1:][0].content }} {{ messages[-1].role }} {{ (messages|last).role }}
{% set messages = messages[1:] %}{{ messages|length }}{% set m = messages|first %}{{ m.content }}
{% if messages[0].role == 'system' %}{% set sys = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}{{ rest|length }}
{{ loop }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ ('x') }} {{ m | default('none') }}
{{ s if s is defined else 'u' }} {{ missing if missing is defined else 'u' }} {{ a if a is not none else 'u' }}
{{ '%s' % s }}
{{ s|escape }}
{{ s|nofilter }}
{{ s is notest }}
{{ html|safe }}
{% include 'x' %}
{% block b %}x{% endblock %}
{% import 'x' as y %}
{% extends 'x' %}
{% call m() %}x{% endcall %}
{% filter upper %}x{% endfilter %}
{% with x = 1 %}{{ x }}{% endwith %}
{% for x in l recursive %}{{ x }}{% endfor %}
{% do l.append(1) %}
{% autoescape true %}{% endautoescape %}
{% nosuch %}
{{ unclosed
{% if a %}
{% endif %}
{% for x l %}{% endfor %}
{{ a b }}
{{ }}
{{ a + }}
{{ [1, 2 }}
{{ 'open }}
{% set %}
{% set 1 = 2 %}
{% macro %}{% endmacro %}
{{ a..b }}
{{ a|}}
{{ l[] }}
{{ {1: 2} }}
{{ s[1, 2] }}
{% break %}
{{ f(*l) }}
{{ $x }}
{{ 10000000000000000000000 }}
{{ 9223372036854775807 + 1 }}
{{ s.splitlines() }}
{{ s.title() }}
{{ u|upper }}
{{ s|title }}
{{ l|sum }}
{{ l|batch(2)|list }}
{{ 3.7|round }}
{{ joiner(',') }}
{{ s.__class__ }}
{{ ''.join(['a', 1]) }}
{{ [3, 'a']|sort }}
{{ 'abc'|join('-') }} {{ {'q': 1}|join('-') }}
{{ range(200000)|length }}
{{ loop.index }}
{%- set x = 'a' -%}   {{- x -}}   b
  {% if true %}
  kept
  {% endif %}
tail
    {%+ if true %}plus{% endif +%}
  x{% if true %}y{% endif %}
 {{ a }}
 {# c #}
end
""".strip("\n").split("\n")

# The multi-line cases at the end of the list are one template, and so are these.
WHOLE = [
    "  {% if true %}\n  kept\n  {% endif %}\ntail\n    {%+ if true %}plus{% endif +%}\n  x{% if true %}y{% endif %}\n {{ a }}\n {# c #}\nend\n\n",
    "a\r\n{% if true %}\r\nb\r{% endif %}\r\nc\r\n", "line\n", "line\n\n", "\n", "", "{{ a }}\n", "{% set x = 1 %}\n\n\nx", "{{ s -}}\n\n  x\n{{- s }}\n y {%- if true -%} \n z \n{%- endif %}\n\n",
    "\t {% for i in l -%}\n  {{ i }}\n\t{%- endfor %}\n x {#- c #}\n{#+ d #}\n  {#- e -#}  \n f", "{% raw %}\n x\n{% endraw %}\n y", " {% raw -%}\n x\n {%- endraw %}\n y", "{%raw%}{{a}}{%endraw%}{%rawish%}",
    "{% if a -%}\n\n  x\n{% elif b +%}\n y\n{% else %}\n z\n{%- endif %}", "x   {%+ if true %} y{% endif %}", "{{ a }}  \n  {% if true %}{% endif %}  \n", "\u3000{% if true %}\n\u3000x{% endif %}\x1c{%- if true %}{% endif %}", "{%- for m in messages -%}\n{{ m.role }}:\n{%- endfor -%}\n",
    "{{ 'multi\nline' }}{{ 'cont\\\ninued' }}", "{#\nmulti\n{{ a }}\n#}\nx", "{{ a\n  +\n b }}", "{ { a } } {a} {%% }", "}} %} #}", "{{ '#}' }}{# '#}", "{{ a }}{{", "{%", "{#", "{{ {'a': '}}'} }}", "{{ (1\n, 2) }}",
]

# Refused by us on purpose although jinja2 renders them.
UNSUPPORTED = set(r"""
{{ s|escape }}
{{ html|safe }}
{% call m() %}x{% endcall %}
{% filter upper %}x{% endfilter %}
{% with x = 1 %}{{ x }}{% endwith %}
{% for x in l recursive %}{{ x }}{% endfor %}
{% block b %}x{% endblock %}
{{ '%s' % s }}
{{ s.format(1) }}
{{ {1: 2} }}
{{ 10000000000000000000000 }}
{{ 9223372036854775807 + 1 }}
{{ s.splitlines() }}
{{ s.title() }}
{{ u|upper }}
{{ s|title }}
{{ l|sum }}
{{ l|batch(2)|list }}
{{ 3.7|round }}
{{ joiner(',') }}
{{ s.__class__ }}
{{ s[1, 2] }}
{{ l[] }}
{% autoescape true %}{% endautoescape %}
{#
""".strip().split("\n"))


class Generation(Extension):
    """Stands for transformers' extension of the same tag."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def reference(env, source, variables):
    try:
        return env.from_string(source).render(**variables)
    except Exception as error:  # noqa: BLE001 - any refusal counts
        return error


def ours(tool, cases):
    lines = "".join(json.dumps({"template": source, "variables": json.dumps(variables)}) + "\n" for source, variables in cases)
    result = subprocess.run([tool, "jinja", "-"], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def chats(rng):
    """Conversations of many shapes, tool calls included."""
    texts = ["Hi", "What is 2 + 2?\nNow!", "größer ☃ <|im_end|> & \"q\"", " spaced ", "<think>\nwhy\n</think>\n\nAnswer", "<tool_response>\nx\n</tool_response>", "", "multi\n\nline"]
    tools = [{"type": "function", "function": {"name": "f", "description": "Does <it>", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}}]
    for _ in range(60):
        messages = []
        if rng.random() < 0.5:
            messages.append({"role": "system", "content": rng.choice(texts)})
        for _ in range(rng.randint(1, 3)):
            messages.append({"role": "user", "content": rng.choice(texts)})
            if rng.random() < 0.25:
                call = {"function": {"name": "f", "arguments": {"q": rng.choice(texts)}}}
                messages.append({"role": "assistant", "content": rng.choice(["", "Calling"]), "tool_calls": [call]})
                messages.append({"role": "tool", "content": rng.choice(texts)})
            messages.append({"role": "assistant", "content": rng.choice(texts)})
        if rng.random() < 0.4:
            messages.pop()
        variables = {"messages": messages, "tools": rng.choice([None, None, tools]), "documents": None, "add_generation_prompt": rng.random() < 0.5,
                     "bos_token": "<|begin_of_text|>", "eos_token": "<|end|>"}
        if rng.random() < 0.3:
            variables["enable_thinking"] = rng.random() < 0.5
        if rng.random() < 0.2:
            variables["builtin_tools"] = ["f", "code_interpreter"]
        yield variables


def main():
    tool, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    env = environment()
    sources = SNIPPETS + WHOLE
    # Each output tag of a line by itself too: a refusal must not hide its neighbours.
    for line in SNIPPETS:
        parts = re.findall(r"\{\{ .+? \}\}(?= |$)", line)
        if len(parts) > 1 and "{%" not in line and "{#" not in line:
            sources += parts
    cases = [(source, VARIABLES) for source in sources]
    names = [repr(source) for source, _ in cases]
    rng = random.Random(3)
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for variables in chats(rng):
            cases.append((source, variables))
            names.append(path.name)
    problems, rendered, refused = [], 0, 0
    for (source, variables), name, mine in zip(cases, names, ours(tool, cases), strict=True):
        theirs = reference(env, source, variables)
        if isinstance(theirs, Exception):
            refused += 1
            if "error" not in mine:
                problems.append(f"{name}: rendered {mine['text']!r}, jinja2 refuses: {theirs}")
        elif "error" in mine:
            if source not in UNSUPPORTED:
                problems.append(f"{name}: refused ({mine['error']}), jinja2 renders {theirs!r}")
        elif source in UNSUPPORTED:
            problems.append(f"{name}: renders now, take it off the list of unsupported snippets")
        else:
            rendered += 1
            if mine["text"] != theirs:
                problems.append(f"{name}:\n  ours   {mine['text']!r}\n  jinja2 {theirs!r}")
    print(f"{rendered} renderings equal or listed below, {refused} refused by both")
    for problem in problems:
        print("DIFFERS", problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
