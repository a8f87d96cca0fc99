// Regular expressions over parameter and module names, with the meaning they have in Python's `re`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace longhaul::config {

/// A compiled pattern. Invalid patterns and patterns that take too long are a UserError naming the
/// option.
class NameRegex {
 public:
  /// `option` is the option (`--target_modules`) that messages name.
  NameRegex(const std::string& pattern, std::string option);
  NameRegex(NameRegex&& other) noexcept;
  NameRegex& operator=(NameRegex&& other) noexcept;
  NameRegex(const NameRegex&) = delete;
  NameRegex& operator=(const NameRegex&) = delete;
  ~NameRegex();

  /// `re.fullmatch`: the whole text.
  [[nodiscard]] bool full_match(std::string_view text) const;
  /// `re.search`: anywhere in the text.
  [[nodiscard]] bool search(std::string_view text) const;

 private:
  [[nodiscard]] bool run(std::string_view text, unsigned int flags) const;

  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_;
  std::string option_;
};

/// True when `text` holds a character that means something in a regular expression and never stands
/// in a module name (the dot does both and does not count).
bool looks_like_regex(std::string_view text);

}  // namespace longhaul::config
