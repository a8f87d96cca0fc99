#include "text/added_tokens.h"

#include "text/expect_refused.h"
#include "text/pattern_translation.h"
#include "text/tiny_tokenizer.h"

namespace longhaul::text {
namespace {

using base::Json;
using testing::HasSubstr;

/// Parts as "text" or "#id" joined by '|'.
std::string parts(const std::vector<AddedToken>& tokens, std::string_view text) {
  TokenFinder finder(SplitPattern::members(word_character_members(), "w"));
  for (const AddedToken& token : tokens) {
    finder.add(token.content, token);
  }
  MatchScratch scratch;
  std::vector<TextPart> found;
  finder.split(text, scratch, found);
  std::string out;
  for (const TextPart& part : found) {
    out += (out.empty() ? "" : "|") +
           (part.id ? "#" + std::to_string(*part.id) : std::string(part.text));
  }
  return out;
}

AddedToken token(std::int32_t id, std::string content) {
  AddedToken result;
  result.id = id;
  result.content = std::move(content);
  return result;
}

TEST(AddedTokens, LongestTokenWinsFromTheLeft) {
  const std::vector<AddedToken> tokens = {token(1, "<a>"), token(2, "<a><b>"), token(3, "<b>")};
  EXPECT_EQ(parts(tokens, "x<a><b>y<a>z<b>"), "x|#2|y|#1|z|#3");
  EXPECT_EQ(parts(tokens, "<a><a><b>"), "#1|#2");
  EXPECT_EQ(parts(tokens, "<a"), "<a");
  EXPECT_EQ(parts(tokens, ""), "");
}

TEST(AddedTokens, StrippingTokensTakeWhiteSpaceAlong) {
  AddedToken left = token(1, "<l>");
  left.lstrip = true;
  AddedToken right = token(2, "<r>");
  right.rstrip = true;
  EXPECT_EQ(parts({left, right}, "a \n<l> b <r>\u3000\t c"), "a|#1| b |#2|c");
  EXPECT_EQ(parts({left, right}, "<r>  <l>"), "#2|#1");  // the space is taken once
}

TEST(AddedTokens, SingleWordTokensNeedNoWordBesideThem) {
  AddedToken word = token(1, "cat");
  word.single_word = true;
  EXPECT_EQ(parts({word}, "cat concat cats cat, (cat) _cat \u00e9cat cat\u0301"),
            "#1| concat cats |#1|, (|#1|) _cat \u00e9cat cat\u0301");
}

TEST(AddedTokens, IdsMustBeThoseOfTheReference) {
  const StringToId vocabulary = {{"a", 0}, {"b", 1}};
  const auto parse = [&](const std::vector<Json>& rows) {
    return parse_added_tokens(Json(rows), vocabulary, "t");
  };
  EXPECT_EQ(parse({added_token_json(2, "<x>", true), added_token_json(3, "<y>", true)}).size(), 2U);
  EXPECT_EQ(parse({added_token_json(1, "b", true), added_token_json(2, "<x>", true)}).size(), 2U);
  EXPECT_THAT(refusal([&] { parse({added_token_json(3, "<x>", true)}); }),
              AllOf(HasSubstr("t[0]"), HasSubstr("got 3, expected 2")));
  EXPECT_THAT(refusal([&] { parse({added_token_json(2, "a", true)}); }), HasSubstr("expected 0"));
  EXPECT_THAT(refusal([&] { parse({added_token_json(0, "<x>", true)}); }), HasSubstr("expected 2"));
}

TEST(AddedTokens, MalformedRowsAreRefused) {
  const StringToId vocabulary = {{"a", 0}};
  for (const auto& [row, part] : std::vector<std::pair<Json, const char*>>{
           {Json(3), "t[0]"},
           {{{"id", 1}}, "'content' is missing"},
           {{{"id", 1}, {"content", ""}}, "'content' is empty"},
           {{{"id", 1}, {"content", "<x>"}, {"lstrip", 1}}, "'lstrip'"},
           {{{"id", 1}, {"content", "<x>"}, {"more", 1}}, "'more'"}}) {
    EXPECT_THAT(
        refusal([&, &row = row] { (void)parse_added_tokens(Json::array({row}), vocabulary, "t"); }),
        HasSubstr(part));
  }
}

}  // namespace
}  // namespace longhaul::text
