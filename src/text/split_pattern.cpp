#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "text/pattern_translation.h"
#include "text/unicode.h"

namespace longhaul::text {
namespace {

constexpr std::size_t kJitStackBytes = 1U << 20U;

PCRE2_SPTR8 bytes_of(std::string_view text) {
  // A null pointer with length 0 is refused by the JIT's entry point.
  return reinterpret_cast<PCRE2_SPTR8>(text.data() == nullptr ? "" : text.data());
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR8, 256> buffer{};
  pcre2_get_error_message_8(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

MatchScratch::MatchScratch()
    : data_(pcre2_match_data_create_8(1, nullptr)),
      context_(pcre2_match_context_create_8(nullptr)),
      stack_(pcre2_jit_stack_create_8(std::size_t{32} * 1024, kJitStackBytes, nullptr)) {
  LONGHAUL_ASSERT(data_ != nullptr && context_ != nullptr, "no memory for matching");
  pcre2_jit_stack_assign_8(context_, nullptr, stack_);
}

MatchScratch::~MatchScratch() {
  pcre2_jit_stack_free_8(stack_);
  pcre2_match_context_free_8(context_);
  pcre2_match_data_free_8(data_);
}

SplitPattern::SplitPattern(std::string_view pattern, const std::string& where) {
  compile(translate_pattern(pattern, where), where);
}

SplitPattern SplitPattern::literal(std::string_view text, const std::string& where) {
  std::string translated;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    translated += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(point.value));
    at += point.size;
  }
  SplitPattern pattern;
  pattern.compile(translated, where);
  return pattern;
}

SplitPattern SplitPattern::members(const std::string& class_members, const std::string& where) {
  SplitPattern pattern;
  pattern.compile("[" + class_members + "]", where);
  return pattern;
}

void SplitPattern::compile(const std::string& translated, const std::string& where) {
  where_ = where;
  const std::unique_ptr<pcre2_compile_context_8, decltype(&pcre2_compile_context_free_8)> context(
      pcre2_compile_context_create_8(nullptr), &pcre2_compile_context_free_8);
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code_8* const code = pcre2_compile_8(
      bytes_of(translated), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C,
      &error, &offset, context.get());
  if (code == nullptr) {
    throw base::UserError(base::Problem{
        .where = where, .what = "regular expression does not compile: " + message_of(error)});
  }
  code_ = std::shared_ptr<pcre2_real_code_8>(code, &pcre2_code_free_8);
  jit_ = pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE) == 0;
}

bool SplitPattern::find(std::string_view text, std::size_t from, MatchScratch& scratch,
                        ByteRange& out) const {
  const int found = jit_ ? pcre2_jit_match_8(code_.get(), bytes_of(text), text.size(), from, 0,
                                             scratch.data_, scratch.context_)
                         : pcre2_match_8(code_.get(), bytes_of(text), text.size(), from,
                                         PCRE2_NO_UTF_CHECK, scratch.data_, scratch.context_);
  if (found == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  if (found < 0) {
    throw base::UserError(base::Problem{
        .where = where_, .what = "regular expression gave up on a text: " + message_of(found)});
  }
  const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer_8(scratch.data_);
  out = {offsets[0], offsets[1]};
  return true;
}

void SplitPattern::find_all(std::string_view text, MatchScratch& scratch,
                            std::vector<ByteRange>& out) const {
  out.clear();
  std::size_t from = 0;
  ByteRange match;
  while (from <= text.size() && find(text, from, scratch, match)) {
    const bool empty_after_match =
        match.begin == match.end && !out.empty() && out.back().end == match.end;
    if (empty_after_match) {
      from += from < text.size() ? code_point_at(text, from).size : 1;
      continue;
    }
    out.push_back(match);
    from = match.end;
  }
}

bool SplitPattern::matches_start(std::string_view text, MatchScratch& scratch) const {
  ByteRange match;
  return find(text, 0, scratch, match) && match.begin == 0;
}

}  // namespace longhaul::text
