// A compiled expression of a pre-tokenizer, matched with PCRE2's JIT, and the per-thread memory
// matching needs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace longhaul::text {

/// Match memory for one thread; any number of patterns may use it one after the other.
class MatchScratch {
 public:
  MatchScratch();
  MatchScratch(MatchScratch&&) = delete;
  MatchScratch& operator=(MatchScratch&&) = delete;
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;
  ~MatchScratch();

 private:
  friend class SplitPattern;
  pcre2_real_match_data_8* data_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
  pcre2_real_jit_stack_8* stack_ = nullptr;
};

/// A half-open byte range.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// An expression in Oniguruma's syntax (tokenizer.json's), matched over UTF-8 text.
class SplitPattern {
 public:
  /// UserError naming `where` for a construct we do not know or an expression that does not
  /// compile.
  SplitPattern(std::string_view pattern, const std::string& where);
  /// Matches exactly this text.
  static SplitPattern literal(std::string_view text, const std::string& where);
  /// Matches one code point out of the inside of a PCRE2 class (category_members …).
  static SplitPattern members(const std::string& class_members, const std::string& where);

  /// Every match from left to right into `out` (cleared first). An empty match right after a match
  /// is skipped.
  void find_all(std::string_view text, MatchScratch& scratch, std::vector<ByteRange>& out) const;
  /// True when the expression matches at the very start of the text.
  [[nodiscard]] bool matches_start(std::string_view text, MatchScratch& scratch) const;

 private:
  SplitPattern() = default;
  void compile(const std::string& translated, const std::string& where);
  bool find(std::string_view text, std::size_t from, MatchScratch& scratch, ByteRange& out) const;

  std::shared_ptr<pcre2_real_code_8> code_;
  std::string where_;
  bool jit_ = false;
};

}  // namespace longhaul::text
