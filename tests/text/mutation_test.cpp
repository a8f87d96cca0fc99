// Foreign bytes: damaged tokenizer files, expressions and chat templates are either taken or refused with a
// UserError; nothing else may happen (run under the sanitizers). Seeds are fixed.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/jinja.h"
#include "text/split_pattern.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using base::Json;
using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

/// A JSON value that does not belong where it is put.
Json odd_value(Random& random) {
  const std::vector<Json> values = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    3.5,
                                    1e300,
                                    UINT64_MAX,
                                    INT64_MIN,
                                    "",
                                    "\u00e9",
                                    "ByteLevel",
                                    "Sequence",
                                    "(?=",
                                    "[",
                                    "x y",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({1, "a"}),
                                    Json::object({{"type", "NFC"}}),
                                    Json::object({{"Regex", "\\p{L}+|("}}),
                                    std::string(300, 'a')};
  return values[below(random, values.size())];
}

/// Walks to a random place of the document and changes, drops or doubles what is there.
void mutate(Json& value, Random& random, int depth) {
  const bool stop = depth == 0 || below(random, 4) == 0 || !value.is_structured() || value.empty();
  if (stop) {
    value = odd_value(random);
    return;
  }
  const auto at =
      std::next(value.begin(), static_cast<std::ptrdiff_t>(below(random, value.size())));
  switch (below(random, 6)) {
    case 0:
      value.erase(at);
      break;
    case 1:
      if (value.is_object()) {
        value["key" + std::to_string(below(random, 3))] = odd_value(random);
      } else {
        value.push_back(*at);
      }
      break;
    default:
      mutate(*at, random, depth - 1);
  }
}

/// True when taken, false when refused in the way users are told.
bool taken(const std::string& text) {
  try {
    const Tokenizer tokenizer = Tokenizer::parse(text, "fuzz");
    const auto ids = tokenizer.encode("hello <|im_end|> h\u00e9 e\u0301 1234\r\n\n  x");
    (void)tokenizer.decode(ids, true);
    return true;
  } catch (const base::UserError& error) {
    EXPECT_NE(std::string(error.what()), "");
    return false;
  }
}

/// A small document with every component, so that mutations reach them.
Json rich_document() {
  Json spec = tiny_tokenizer_json();
  Json small = Json::object();
  for (const char* const token :
       {"h", "e", "l", "o", "\u0120", "he", "ll", "hell", "hello", "\u0120hello"}) {
    small[token] = small.size();
  }
  spec["model"]["vocab"] = small;
  spec["added_tokens"] = {added_token_json(10, "<|im_end|>", true),
                          added_token_json(11, "<r>", false)};
  spec["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  spec["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", "\\p{N}{1,3}|[^\\s]+|(?i:'s)"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             {{"type", "Digits"}, {"individual_digits", true}},
                             {{"type", "ByteLevel"},
                              {"add_prefix_space", true},
                              {"trim_offsets", true},
                              {"use_regex", true}}}}};
  return spec;
}

TEST(Mutation, TokenizerDocumentsAreTakenOrRefused) {
  const Json original = rich_document();
  ASSERT_TRUE(taken(original.dump()));
  Random random(1);  // NOLINT(cert-msc51-cpp): the same cases every time
  int refused = 0;
  constexpr int kCases = 4000;
  for (int i = 0; i < kCases; ++i) {
    Json document = original;
    for (std::size_t changes = 1 + below(random, 3); changes > 0; --changes) {
      mutate(document, random, 7);
    }
    refused += taken(document.dump(-1, ' ', false, Json::error_handler_t::replace)) ? 0 : 1;
  }
  EXPECT_GT(refused, kCases / 4);
  EXPECT_LT(refused, kCases);
}

TEST(Mutation, DamagedBytesAreTakenOrRefused) {
  const std::string original = rich_document().dump();
  Random random(2);  // NOLINT(cert-msc51-cpp)
  int refused = 0;
  constexpr int kCases = 3000;
  for (int i = 0; i < kCases; ++i) {
    std::string text = original;
    for (std::size_t changes = 1 + below(random, 4); changes > 0; --changes) {
      const std::size_t at = below(random, text.size());
      switch (below(random, 4)) {
        case 0:
          text[at] = static_cast<char>(below(random, 256));
          break;
        case 1:
          text.resize(at + 1);
          break;
        case 2:
          text.erase(at, below(random, 20));
          break;
        default:
          text.insert(at, text.substr(below(random, text.size()), below(random, 30)));
      }
      if (text.empty()) {
        text = "x";
      }
    }
    refused += taken(text) ? 0 : 1;
  }
  EXPECT_GT(refused, kCases / 2);
}

TEST(Mutation, ExpressionsCompileOrAreRefused) {
  const std::vector<std::string> parts = {"\\p{L}", "\\s",    "[^",      "[",       "]",    "a-z",
                                          "(",      "(?:",    "(?i:",    "(?!",     "(?<=", "(?>",
                                          ")",      "|",      "*",       "+",       "?",    "{2}",
                                          "{1,",    "}",      "\\",      "'s",      ".",    "^",
                                          "$",      "\u00e9", "\\x{41}", "\\u00e9", "-",    "&&",
                                          "\\d",    "\\]",    "{,3}",    "\\pL"};
  Random random(3);  // NOLINT(cert-msc51-cpp)
  int compiled = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string pattern;
    for (std::size_t count = 1 + below(random, 8); count > 0; --count) {
      pattern += parts[below(random, parts.size())];
    }
    try {
      const SplitPattern split(pattern, "fuzz");
      MatchScratch scratch;
      std::vector<ByteRange> found;
      split.find_all("ab 12 \u00e9\u0301's\n x", scratch, found);
      ++compiled;
    } catch (const base::UserError&) {  // NOLINT(bugprone-empty-catch)
    }
  }
  EXPECT_GT(compiled, 500);
}

/// What templates are made of, to be strung together at random.
std::vector<std::string> template_parts() {
  return {"{% for m in messages %}",
          "{% endfor %}",
          "{% if ",
          "a",
          "%}",
          "{% endif %}",
          "{{ ",
          " }}",
          "m.content",
          "messages",
          "[",
          "]",
          "(",
          ")",
          "-1",
          ":",
          "|trim",
          "|tojson",
          " is ",
          "defined",
          "none",
          " + ",
          " ~ ",
          "'x'",
          "\"",
          "{%- set x = ",
          "x",
          " -%}",
          "{#",
          "#}",
          "loop.index",
          " if ",
          " else ",
          "{% macro f(a) %}",
          "{% endmacro %}",
          "f(",
          ",",
          "{% set ns = namespace(a=1) %}",
          "{% set ns.a = ",
          "ns.a",
          "|map('upper')",
          "|join",
          ".split(",
          "\n",
          "  ",
          "{% raw %}",
          "{% endraw %}",
          "**",
          "//",
          "%",
          "not ",
          " in ",
          "==",
          "<",
          "{",
          "}",
          "\\",
          "\u00e9"};
}

TEST(Mutation, TemplatesRenderOrAreRefused) {
  const std::vector<std::string> parts = template_parts();
  const auto variables =
      base::OrderedJson::parse(R"({"messages": [{"role": "user", "content": "hi"}], "a": 1})");
  Random random(4);  // NOLINT(cert-msc51-cpp)
  int rendered = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string source;
    for (std::size_t count = 1 + below(random, 10); count > 0; --count) {
      source += parts[below(random, parts.size())];
    }
    try {
      (void)JinjaTemplate::parse(source, "fuzz").render(variables);
      ++rendered;
    } catch (const base::UserError&) {  // NOLINT(bugprone-empty-catch)
    }
  }
  EXPECT_GT(rendered, 1000);
}

}  // namespace
}  // namespace longhaul::text
