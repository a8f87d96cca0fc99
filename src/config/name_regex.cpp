#include "config/name_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace longhaul::config {
namespace {

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  if (pcre2_get_error_message(error, buffer.data(), buffer.size()) < 0) {
    return fmt::format("error {}", error);
  }
  std::string text;
  for (const PCRE2_UCHAR unit : buffer) {
    if (unit == 0) {
      break;
    }
    text += static_cast<char>(unit);
  }
  return text;
}

PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());  // NOLINT: PCRE2 wants unsigned characters
}

}  // namespace

struct NameRegex::Code {
  explicit Code(pcre2_code* code) : compiled(code, pcre2_code_free) {}
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> compiled;
};

NameRegex::NameRegex(const std::string& pattern, std::string option)
    : pattern_(pattern), option_(std::move(option)) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(units(pattern), pattern.size(), PCRE2_UTF, &error, &offset, nullptr);
  if (code == nullptr) {
    throw base::UserError({.where = option_,
                           .what = fmt::format("invalid regular expression at character {}: {}",
                                               offset + 1, pcre2_message(error)),
                           .got = pattern});
  }
  code_ = std::make_unique<Code>(code);
}

NameRegex::NameRegex(NameRegex&& other) noexcept = default;
NameRegex& NameRegex::operator=(NameRegex&& other) noexcept = default;
NameRegex::~NameRegex() = default;

bool NameRegex::full_match(std::string_view text) const {
  return run(text, PCRE2_ANCHORED | PCRE2_ENDANCHORED);
}

bool NameRegex::search(std::string_view text) const { return run(text, 0); }

bool NameRegex::run(std::string_view text, unsigned int flags) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->compiled.get(), nullptr), pcre2_match_data_free);
  const int result =
      pcre2_match(code_->compiled.get(), units(text), text.size(), 0, flags, data.get(), nullptr);
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    throw base::UserError(
        {.where = option_,
         .what = fmt::format("regular expression fails on '{}': {}", text, pcre2_message(result)),
         .got = pattern_,
         .hint = "Use a simpler expression"});
  }
  return result >= 0;
}

bool looks_like_regex(std::string_view text) {
  return text.find_first_of("\\^$*+?{}[]()|") != std::string_view::npos;
}

}  // namespace longhaul::config
