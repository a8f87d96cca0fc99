#include "text/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/json_fields.h"
#include "text/pattern_translation.h"

namespace longhaul::text {
namespace {

constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The reference's Digits follows Unicode 17, its expressions Unicode 16.
constexpr std::string_view kNewestDigits = R"(\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6})";

constexpr std::array kBehaviors = {
    std::pair{std::string_view("Removed"), SplitBehavior::kRemoved},
    std::pair{std::string_view("Isolated"), SplitBehavior::kIsolated},
    std::pair{std::string_view("MergedWithPrevious"), SplitBehavior::kMergedWithPrevious},
    std::pair{std::string_view("MergedWithNext"), SplitBehavior::kMergedWithNext},
    std::pair{std::string_view("Contiguous"), SplitBehavior::kContiguous}};

SplitBehavior behavior_named(const std::string& name, const std::string& where) {
  const auto* const at = std::find_if(kBehaviors.begin(), kBehaviors.end(),
                                      [&](const auto& row) { return row.first == name; });
  if (at == kBehaviors.end()) {
    throw base::UserError(base::Problem{
        .where = where,
        .what = "unknown 'behavior'",
        .got = name,
        .expected = "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous"});
  }
  return at->second;
}

/// A stretch of text and whether the pattern (or, inverted, its opposite) matched it.
struct Stretch {
  ByteRange range;
  bool matched;
};

/// Matches and what lies between them, covering the whole word.
std::vector<Stretch> stretches_of(std::size_t size, const std::vector<ByteRange>& matches,
                                  bool invert) {
  std::vector<Stretch> stretches;
  std::size_t end = 0;
  for (const ByteRange& match : matches) {
    if (match.begin != end) {
      stretches.push_back({{end, match.begin}, invert});
    }
    stretches.push_back({match, !invert});
    end = match.end;
  }
  if (end != size) {
    stretches.push_back({{end, size}, invert});
  }
  return stretches;
}

/// A match that follows something other than a match joins its neighbour to the left.
std::vector<ByteRange> merged_with_previous(const std::vector<Stretch>& stretches) {
  std::vector<ByteRange> words;
  bool previous = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.matched && !previous && !words.empty()) {
      words.back().end = stretch.range.end;
    } else {
      words.push_back(stretch.range);
    }
    previous = stretch.matched;
  }
  return words;
}

/// The mirror image: seen from the right, a match joins its neighbour to the right.
std::vector<ByteRange> merged_with_next(const std::vector<Stretch>& stretches) {
  std::vector<ByteRange> words;
  bool previous = false;
  for (auto at = stretches.rbegin(); at != stretches.rend(); ++at) {
    if (at->matched && !previous && !words.empty()) {
      words.back().begin = at->range.begin;
    } else {
      words.push_back(at->range);
    }
    previous = at->matched;
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<ByteRange> contiguous(const std::vector<Stretch>& stretches) {
  std::vector<ByteRange> words;
  bool previous = false;
  for (const Stretch& stretch : stretches) {
    if (!words.empty() && stretch.matched == previous) {
      words.back().end = stretch.range.end;
    } else {
      words.push_back(stretch.range);
    }
    previous = stretch.matched;
  }
  return words;
}

std::vector<ByteRange> words_of(const std::vector<Stretch>& stretches, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return merged_with_previous(stretches);
    case SplitBehavior::kMergedWithNext:
      return merged_with_next(stretches);
    case SplitBehavior::kContiguous:
      return contiguous(stretches);
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
  }
  std::vector<ByteRange> words;
  for (const Stretch& stretch : stretches) {
    if (behavior == SplitBehavior::kIsolated || !stretch.matched) {
      words.push_back(stretch.range);
    }
  }
  return words;
}

void add_word(std::string_view word, ByteRange range, std::vector<std::string_view>& words) {
  if (range.end > range.begin) {
    words.push_back(word.substr(range.begin, range.end - range.begin));
  }
}

}  // namespace

PreTokenizer PreTokenizer::parse(const base::Json& spec, const std::string& where) {
  PreTokenizer result;
  result.parse_component(spec, where, 0);
  if (!result.byte_level_) {
    throw base::UserError(base::Problem{
        .where = where, .what = "no ByteLevel step; only byte-level BPE is supported"});
  }
  return result;
}

void PreTokenizer::parse_component(const base::Json& spec, const std::string& where, int depth) {
  const JsonFields fields(spec, where);
  const std::string type = fields.string("type");
  if (byte_level_ && type != "Sequence") {
    throw base::UserError(base::Problem{
        .where = where, .what = "a step after ByteLevel is not supported", .got = type});
  }
  if (type == "Split") {
    parse_split(spec, where);
  } else if (type == "Digits") {
    fields.allow_only({"type", "individual_digits"});
    Step step(SplitPattern::members(category_members("N") + std::string(kNewestDigits), where));
    step.behavior =
        fields.boolean("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    steps_.push_back(std::move(step));
  } else if (type == "ByteLevel") {
    parse_byte_level(spec, where);
  } else if (type == "Sequence" && depth < 8) {
    fields.allow_only({"type", "pretokenizers"});
    const base::Json& parts = fields.require("pretokenizers");
    if (!parts.is_array()) {
      throw base::UserError(base::Problem{
          .where = where, .what = "'pretokenizers' is not a list", .got = shown(parts)});
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parse_component(parts[i], fmt::format("{}[{}]", where, i), depth + 1);
    }
  } else {
    throw base::UserError(
        base::Problem{.where = where,
                      .what = "unsupported component",
                      .got = type,
                      .expected = "Split, Digits, ByteLevel or a Sequence of them"});
  }
}

void PreTokenizer::parse_split(const base::Json& spec, const std::string& where) {
  const JsonFields fields(spec, where);
  fields.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonFields pattern(fields.require("pattern"), where + ".pattern");
  pattern.allow_only({"Regex", "String"});
  const bool is_regex = pattern.find("Regex") != nullptr;
  const std::string text = pattern.string(is_regex ? "Regex" : "String");
  if (text.empty() || (is_regex && pattern.find("String") != nullptr)) {
    throw base::UserError(
        base::Problem{.where = pattern.where(), .what = "needs one non-empty pattern"});
  }
  Step step(is_regex ? SplitPattern(text, pattern.where())
                     : SplitPattern::literal(text, pattern.where()));
  step.behavior = behavior_named(fields.string("behavior"), where);
  step.invert = fields.boolean("invert");
  steps_.push_back(std::move(step));
}

void PreTokenizer::parse_byte_level(const base::Json& spec, const std::string& where) {
  const JsonFields fields(spec, where);
  // trim_offsets moves character offsets only, never ids.
  fields.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  Step step(SplitPattern(kByteLevelPattern, where));
  step.prefix_space = fields.boolean("add_prefix_space");
  step.splits = fields.boolean("use_regex", true);
  if (step.prefix_space || step.splits) {
    steps_.push_back(std::move(step));
  }
  byte_level_ = true;
}

void PreTokenizer::apply(const Step& step, std::string_view word, SplitScratch& scratch) {
  if (step.prefix_space && !word.starts_with(' ')) {
    word = scratch.prefixed.emplace_back(" " + std::string(word));
  }
  if (!step.splits) {
    scratch.next_words.push_back(word);
    return;
  }
  step.pattern.find_all(word, scratch.match, scratch.matches);
  if (step.behavior == SplitBehavior::kIsolated) {
    // Whether a stretch matched does not matter here: the common case needs no second list.
    std::size_t end = 0;
    for (const ByteRange& match : scratch.matches) {
      add_word(word, {end, match.begin}, scratch.next_words);
      add_word(word, match, scratch.next_words);
      end = match.end;
    }
    add_word(word, {end, word.size()}, scratch.next_words);
    return;
  }
  const auto stretches = stretches_of(word.size(), scratch.matches, step.invert);
  for (const ByteRange& range : words_of(stretches, step.behavior)) {
    add_word(word, range, scratch.next_words);
  }
}

void PreTokenizer::split(std::string_view text, SplitScratch& scratch) const {
  scratch.prefixed.clear();
  scratch.words.clear();
  if (!text.empty()) {
    scratch.words.push_back(text);
  }
  for (const Step& step : steps_) {
    scratch.next_words.clear();
    for (const std::string_view word : scratch.words) {
      apply(step, word, scratch);
    }
    scratch.words.swap(scratch.next_words);
  }
}

}  // namespace longhaul::text
