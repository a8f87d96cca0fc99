#include "text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "text/json_fields.h"
#include "text/unicode.h"

namespace longhaul::text {
namespace {

/// Start of the white space that ends at `end`.
std::size_t white_space_begin(std::string_view text, std::size_t end) {
  while (end > 0) {
    const CodePoint point = code_point_before(text, end);
    if (!is_white_space(point.value)) {
      break;
    }
    end -= point.size;
  }
  return end;
}

/// End of the white space that starts at `begin`.
std::size_t white_space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_white_space(point.value)) {
      break;
    }
    begin += point.size;
  }
  return begin;
}

AddedToken parse_token(const base::Json& row, const std::string& where) {
  const JsonFields fields(row, where);
  fields.allow_only({"id", "content", "special", "normalized", "lstrip", "rstrip", "single_word"});
  AddedToken token;
  token.id = fields.id("id", kMaxTokenId);
  token.content = fields.string("content");
  token.special = fields.boolean("special", false);
  token.normalized = fields.boolean("normalized", !token.special);
  token.lstrip = fields.boolean("lstrip", false);
  token.rstrip = fields.boolean("rstrip", false);
  token.single_word = fields.boolean("single_word", false);
  if (token.content.empty()) {
    throw base::UserError(base::Problem{.where = where, .what = "'content' is empty"});
  }
  return token;
}

}  // namespace

void TokenFinder::add(std::string_view pattern, AddedToken token) {
  if (pattern.empty()) {
    return;
  }
  std::size_t node = 0;
  for (const char c : pattern) {
    const auto [at, added] = nodes_[node].next.emplace(c, static_cast<std::int32_t>(nodes_.size()));
    node = static_cast<std::size_t>(at->second);
    if (added) {
      nodes_.emplace_back();
    }
  }
  starts_.at(static_cast<unsigned char>(pattern.front())) = true;
  // Of equal patterns the first one counts.
  if (nodes_[node].token < 0) {
    nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(std::move(token));
  }
}

TokenFinder::Match TokenFinder::longest_at(std::string_view text, std::size_t at) const {
  Match match;
  std::size_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(text[i]);
    if (next == nodes_[node].next.end()) {
      break;
    }
    node = static_cast<std::size_t>(next->second);
    if (nodes_[node].token >= 0) {
      match = {i + 1 - at, &tokens_[static_cast<std::size_t>(nodes_[node].token)]};
    }
  }
  return match;
}

bool TokenFinder::stands_alone(std::string_view text, std::size_t begin, std::size_t end,
                               MatchScratch& scratch) const {
  const auto is_word = [&](std::size_t at, std::size_t size) {
    return word_character_.matches_start(text.substr(at, size), scratch);
  };
  if (begin > 0) {
    const std::size_t size = code_point_before(text, begin).size;
    if (is_word(begin - size, size)) {
      return false;
    }
  }
  return end == text.size() || !is_word(end, code_point_at(text, end).size);
}

void TokenFinder::split(std::string_view text, MatchScratch& scratch,
                        std::vector<TextPart>& out) const {
  std::size_t taken = 0;  // everything before it has been handed out
  std::size_t at = 0;
  while (at < text.size()) {
    if (!starts_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(text, at);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match.size;
    at = end;
    const AddedToken& token = *match.token;
    if (token.single_word && !stands_alone(text, begin, end, scratch)) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(white_space_begin(text, begin), taken);
    }
    if (token.rstrip) {
      end = white_space_end(text, end);
    }
    if (taken < begin) {
      out.push_back({text.substr(taken, begin - taken), std::nullopt});
    }
    out.push_back({text.substr(begin, end - begin), token.id});
    taken = end;
  }
  if (taken != text.size()) {
    out.push_back({text.substr(taken), std::nullopt});
  }
}

std::vector<AddedToken> parse_added_tokens(const base::Json& list, const StringToId& vocabulary,
                                           const std::string& where) {
  if (!list.is_array()) {
    throw base::UserError(base::Problem{
        .where = where, .what = "wrong type", .got = shown(list), .expected = "a list"});
  }
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, std::int32_t> ids;
  const auto vocabulary_size = static_cast<std::int32_t>(vocabulary.size());
  std::int32_t largest = -1;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    AddedToken token = parse_token(list[i], place);
    // The reference takes the id from the vocabulary or counts on from it, whatever the file says.
    std::int32_t expected = std::max(largest + 1, vocabulary_size);
    if (const auto at = ids.find(token.content); at != ids.end()) {
      expected = at->second;
    } else if (const auto known = vocabulary.find(token.content); known != vocabulary.end()) {
      expected = known->second;
    }
    if (token.id != expected) {
      throw base::UserError(base::Problem{
          .where = place,
          .what = fmt::format("id of token '{}' contradicts the vocabulary", token.content),
          .got = std::to_string(token.id),
          .expected = std::to_string(expected),
          .hint = "Ids of added tokens continue the vocabulary without gaps"});
    }
    ids.emplace(token.content, token.id);
    largest = std::max(largest, token.id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace longhaul::text
