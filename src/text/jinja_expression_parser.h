// Tokens → expression trees with Jinja's precedence.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace longhaul::text::jinja {

/// Whether an expression may hold a trailing `if … else …`.
enum class Inline { kNo, kYes };

/// Reads expressions from a token list; the statement parser moves the same cursor.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  /// One expression, or a tuple of them (`a, b`).
  ExprPtr parse_tuple(Inline condition);
  /// One expression with an optional inline condition.
  ExprPtr parse_expression();
  /// A name, or several separated by commas, to assign to.
  ExprPtr parse_target();

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] bool is_operator(std::string_view text) const;
  [[nodiscard]] bool is_name(std::string_view text) const;
  bool take_operator(std::string_view text);
  bool take_name(std::string_view text);
  /// UserError unless the token is there.
  void expect_operator(std::string_view text);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view what);
  Token advance() { return tokens_[at_++]; }
  [[noreturn]] void fail(const std::string& what) const { fail_at(where_, current().line, what); }

 private:
  [[nodiscard]] ExprPtr make(ExprKind kind) const;
  [[nodiscard]] ExprPtr wrap(ExprKind kind, ExprPtr child);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  void parse_arguments(Expr& call);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_parentheses();
  ExprPtr parse_literal();
  ExprPtr binary(ExprPtr left, ExprPtr right, std::string name);

  std::vector<Token> tokens_;
  const std::string& where_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int chain_ = 0;  // nodes wrapped around others, which recursion will have to follow
};

}  // namespace longhaul::text::jinja
