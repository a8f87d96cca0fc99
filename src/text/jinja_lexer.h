// Jinja source → tokens, with the white-space rules transformers uses (trim_blocks and
// lstrip_blocks on).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::text::jinja {

enum class TokenKind {
  kText,        // output as it is
  kOutputOpen,  // {{
  kOutputClose,
  kBlockOpen,  // {%
  kBlockClose,
  kName,
  kString,  // `text` is the value, escapes resolved
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  std::size_t line = 1;
};

/// All tokens and a kEnd; UserError `where:line` for what Jinja itself refuses.
std::vector<Token> tokenize_template(std::string_view source, const std::string& where);

/// UserError for one place of a template.
[[noreturn]] void fail_at(const std::string& where, std::size_t line, const std::string& what);

}  // namespace longhaul::text::jinja
