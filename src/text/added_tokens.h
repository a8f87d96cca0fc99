// Added and special tokens: found in the text before anything else looks at it, each becomes one
// id.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/bpe_model.h"
#include "text/split_pattern.h"

namespace longhaul::text {

/// One row of `added_tokens` in tokenizer.json.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  // found in normalised text
  bool lstrip = false;      // takes white space to its left along
  bool rstrip = false;
  bool single_word = false;  // only where no word character touches it
};

/// A part of a text: a token (`id`) or, without an id, text for the model.
struct TextPart {
  std::string_view text;
  std::optional<std::int32_t> id;
};

/// Finds the longest of several strings from left to right.
class TokenFinder {
 public:
  explicit TokenFinder(const SplitPattern& word_character) : word_character_(word_character) {}
  /// `pattern` is what stands in the text for `token` (its content, normalised where the token says
  /// so).
  void add(std::string_view pattern, AddedToken token);
  /// Appends the parts of `text` in order, text parts never empty.
  void split(std::string_view text, MatchScratch& scratch, std::vector<TextPart>& out) const;
  [[nodiscard]] bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::unordered_map<char, std::int32_t> next;
    std::int32_t token = -1;
  };
  struct Match {
    std::size_t size = 0;
    const AddedToken* token = nullptr;
  };
  [[nodiscard]] Match longest_at(std::string_view text, std::size_t at) const;
  [[nodiscard]] bool stands_alone(std::string_view text, std::size_t begin, std::size_t end,
                                  MatchScratch& scratch) const;

  SplitPattern word_character_;
  std::vector<Node> nodes_{1};
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};  // bytes that some pattern starts with
};

/// Reads `added_tokens`; UserError when an id is not the one the reference gives.
std::vector<AddedToken> parse_added_tokens(const base::Json& list, const StringToId& vocabulary,
                                           const std::string& where);

}  // namespace longhaul::text
