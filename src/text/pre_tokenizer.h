// Cuts text into words before BPE: the pre_tokenizer of tokenizer.json (Split, Digits, ByteLevel,
// Sequence).
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/split_pattern.h"

namespace longhaul::text {

/// What a Split does with the matches of its pattern (names as in tokenizer.json).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Memory that one thread reuses over calls; `words` is the result and lives until the next call.
struct SplitScratch {
  MatchScratch match;
  std::vector<ByteRange> matches;
  std::vector<std::string_view> words;
  std::vector<std::string_view> next_words;
  std::deque<std::string> prefixed;  // words that got a space in front
};

/// The steps of one pre_tokenizer, in order.
class PreTokenizer {
 public:
  /// UserError naming the component when it is not one of the four, or when the last step is not
  /// ByteLevel.
  static PreTokenizer parse(const base::Json& spec, const std::string& where);

  /// Words of the text, in order, none empty; views into `text` or the scratch memory.
  void split(std::string_view text, SplitScratch& scratch) const;

 private:
  struct Step {
    explicit Step(SplitPattern split_pattern) : pattern(std::move(split_pattern)) {}
    SplitPattern pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool prefix_space = false;  // before splitting
    bool splits = true;
  };

  void parse_component(const base::Json& spec, const std::string& where, int depth);
  void parse_split(const base::Json& spec, const std::string& where);
  void parse_byte_level(const base::Json& spec, const std::string& where);
  static void apply(const Step& step, std::string_view word, SplitScratch& scratch);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace longhaul::text
