#include "text/jinja_expression_parser.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace longhaul::text::jinja {
namespace {

// Depth of nesting and of chains (a + b + c …): bounds the recursion of everything that walks the
// tree.
constexpr int kMaxDepth = 100;
constexpr int kMaxChain = 1000;

}  // namespace

bool ExpressionParser::is_operator(std::string_view text) const {
  return current().kind == TokenKind::kOperator && current().text == text;
}

bool ExpressionParser::is_name(std::string_view text) const {
  return current().kind == TokenKind::kName && current().text == text;
}

bool ExpressionParser::take_operator(std::string_view text) {
  const bool found = is_operator(text);
  at_ += found ? 1 : 0;
  return found;
}

bool ExpressionParser::take_name(std::string_view text) {
  const bool found = is_name(text);
  at_ += found ? 1 : 0;
  return found;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!take_operator(text)) {
    fail(fmt::format("expected '{}' before '{}'", text, current().text));
  }
}

std::string ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) {
    fail(fmt::format("expected a name before '{}'", current().text));
  }
  return advance().text;
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) {
    fail(fmt::format("expected {} before '{}'", what, current().text));
  }
  ++at_;
}

ExprPtr ExpressionParser::make(ExprKind kind) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

ExprPtr ExpressionParser::wrap(ExprKind kind, ExprPtr child) {
  if (++chain_ > kMaxChain) {
    fail("expression too long");
  }
  ExprPtr node = make(kind);
  node->line = child->line;
  node->children.push_back(std::move(child));
  return node;
}

ExprPtr ExpressionParser::binary(ExprPtr left, ExprPtr right, std::string name) {
  ExprPtr node = wrap(ExprKind::kBinary, std::move(left));
  node->name = std::move(name);
  node->children.push_back(std::move(right));
  return node;
}

ExprPtr ExpressionParser::parse_tuple(Inline condition) {
  if (depth_ == 0) {
    chain_ = 0;
  }
  const auto one = [&] { return condition == Inline::kYes ? parse_expression() : parse_or(); };
  ExprPtr first = one();
  if (!is_operator(",")) {
    return first;
  }
  ExprPtr tuple = make(ExprKind::kTuple);
  tuple->children.push_back(std::move(first));
  while (take_operator(",")) {
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kBlockClose || kind == TokenKind::kOutputClose || is_operator(")")) {
      break;
    }
    tuple->children.push_back(one());
  }
  return tuple;
}

ExprPtr ExpressionParser::parse_target() {
  const auto one = [&] {
    ExprPtr node = make(ExprKind::kName);
    node->name = expect_name();
    return node;
  };
  const bool parenthesis = take_operator("(");
  ExprPtr first = one();
  if (!parenthesis && take_operator(".")) {
    ExprPtr node = wrap(ExprKind::kAttribute, std::move(first));
    node->name = expect_name();
    return node;
  }
  if (is_operator(",")) {
    ExprPtr tuple = make(ExprKind::kTuple);
    tuple->children.push_back(std::move(first));
    while (take_operator(",")) {
      tuple->children.push_back(one());
    }
    first = std::move(tuple);
  }
  if (parenthesis) {
    expect_operator(")");
  }
  return first;
}

ExprPtr ExpressionParser::parse_expression() {
  if (++depth_ > kMaxDepth) {
    fail("expression nested too deep");
  }
  ExprPtr node = parse_or();
  while (take_name("if")) {
    ExprPtr condition = wrap(ExprKind::kCondition, std::move(node));
    condition->children.push_back(parse_or());
    condition->children.push_back(take_name("else") ? parse_expression() : nullptr);
    node = std::move(condition);
  }
  --depth_;
  return node;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr node = parse_and();
  while (take_name("or")) {
    node = wrap(ExprKind::kOr, std::move(node));
    node->children.push_back(parse_and());
  }
  return node;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr node = parse_not();
  while (take_name("and")) {
    node = wrap(ExprKind::kAnd, std::move(node));
    node->children.push_back(parse_not());
  }
  return node;
}

ExprPtr ExpressionParser::parse_not() {
  int count = 0;
  while (take_name("not")) {
    ++count;
  }
  ExprPtr node = parse_compare();
  for (; count > 0; --count) {
    node = wrap(ExprKind::kNot, std::move(node));
  }
  return node;
}

ExprPtr ExpressionParser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr node;
  const auto add = [&](std::string name) {
    if (node == nullptr) {
      node = wrap(ExprKind::kCompare, std::move(first));
    }
    node->names.push_back(std::move(name));
    node->children.push_back(parse_sum());
  };
  while (true) {
    bool found = false;
    for (const std::string_view name : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take_operator(name)) {
        add(std::string(name));
        found = true;
        break;
      }
    }
    if (found) {
      continue;
    }
    if (take_name("in")) {
      add("in");
    } else if (is_name("not") && tokens_[at_ + 1].kind == TokenKind::kName &&
               tokens_[at_ + 1].text == "in") {
      at_ += 2;
      add("not in");
    } else {
      break;
    }
  }
  return node == nullptr ? std::move(first) : std::move(node);
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr node = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    std::string name = advance().text;
    ExprPtr right = parse_concat();
    node = binary(std::move(node), std::move(right), std::move(name));
  }
  return node;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr node = parse_product();
  if (!is_operator("~")) {
    return node;
  }
  node = wrap(ExprKind::kConcat, std::move(node));
  while (take_operator("~")) {
    node->children.push_back(parse_product());
  }
  return node;
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr node = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    std::string name = advance().text;
    ExprPtr right = parse_power();
    node = binary(std::move(node), std::move(right), std::move(name));
  }
  return node;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr node = parse_unary(true);
  while (take_operator("**")) {
    ExprPtr right = parse_unary(true);
    node = binary(std::move(node), std::move(right), "**");
  }
  return node;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  if (++depth_ > kMaxDepth) {
    fail("expression nested too deep");
  }
  ExprPtr node;
  if (take_operator("-")) {
    node = wrap(ExprKind::kNegate, parse_unary(false));
  } else if (take_operator("+")) {
    node = wrap(ExprKind::kPlus, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  if (with_filter) {
    node = parse_filters(std::move(node));
  }
  --depth_;
  return node;
}

ExprPtr ExpressionParser::parse_primary() {
  switch (current().kind) {
    case TokenKind::kName:
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_literal();
    case TokenKind::kOperator:
      if (is_operator("(")) {
        return parse_parentheses();
      }
      if (is_operator("[")) {
        return parse_list();
      }
      if (is_operator("{")) {
        return parse_dict();
      }
      [[fallthrough]];
    default:
      fail(fmt::format("expected an expression before '{}'", current().text));
  }
}

ExprPtr ExpressionParser::parse_literal() {
  ExprPtr node = make(ExprKind::kLiteral);
  const Token token = advance();
  if (token.kind == TokenKind::kString) {
    std::string text = token.text;
    while (current().kind == TokenKind::kString) {
      text += advance().text;
    }
    node->value = Value::text(std::move(text));
  } else if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) {
    const char* const end = token.text.data() + token.text.size();
    std::int64_t whole = 0;
    double number = 0;
    const auto result = token.kind == TokenKind::kInteger
                            ? std::from_chars(token.text.data(), end, whole)
                            : std::from_chars(token.text.data(), end, number);
    if (result.ec != std::errc() || result.ptr != end) {
      fail(fmt::format("number {} is out of range", token.text));
    }
    node->value = token.kind == TokenKind::kInteger ? Value::integer(whole) : Value(number);
  } else if (token.text == "true" || token.text == "True") {
    node->value = Value::boolean(true);
  } else if (token.text == "false" || token.text == "False") {
    node->value = Value::boolean(false);
  } else if (token.text != "none" && token.text != "None") {
    node->kind = ExprKind::kName;
    node->name = token.text;
  }
  return node;
}

ExprPtr ExpressionParser::parse_parentheses() {
  expect_operator("(");
  ExprPtr node;
  if (is_operator(")")) {
    node = make(ExprKind::kTuple);
  } else {
    node = parse_tuple(Inline::kYes);
  }
  expect_operator(")");
  return node;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr node = make(ExprKind::kList);
  expect_operator("[");
  while (!is_operator("]")) {
    node->children.push_back(parse_expression());
    if (!take_operator(",")) {
      break;
    }
  }
  expect_operator("]");
  return node;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr node = make(ExprKind::kDict);
  expect_operator("{");
  while (!is_operator("}")) {
    node->children.push_back(parse_expression());
    expect_operator(":");
    node->children.push_back(parse_expression());
    if (!take_operator(",")) {
      break;
    }
  }
  expect_operator("}");
  return node;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  while (true) {
    if (take_operator(".")) {
      ExprPtr attribute = wrap(ExprKind::kAttribute, std::move(node));
      if (current().kind == TokenKind::kInteger) {
        attribute->kind = ExprKind::kItem;
        attribute->children.push_back(parse_literal());
      } else {
        attribute->name = expect_name();
      }
      node = std::move(attribute);
    } else if (is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_operator("(")) {
      node = wrap(ExprKind::kCall, std::move(node));
      parse_arguments(*node);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  expect_operator("[");
  node = wrap(ExprKind::kItem, std::move(node));
  const auto part = [&]() -> ExprPtr {
    return is_operator(":") || is_operator("]") ? nullptr : parse_expression();
  };
  node->children.push_back(part());
  if (is_operator(":")) {
    node->kind = ExprKind::kSlice;
    expect_operator(":");
    node->children.push_back(part());
    node->children.push_back(take_operator(":") ? part() : nullptr);
  } else if (node->children[1] == nullptr) {
    fail("empty subscript");
  }
  expect_operator("]");
  return node;
}

void ExpressionParser::parse_arguments(Expr& call) {
  expect_operator("(");
  while (!is_operator(")")) {
    if (is_operator("*") || is_operator("**")) {
      fail("argument unpacking is not supported");
    }
    const Token& next = tokens_[at_ + 1];
    if (current().kind == TokenKind::kName && next.kind == TokenKind::kOperator &&
        next.text == "=") {
      std::string name = advance().text;
      ++at_;
      call.named.emplace_back(std::move(name), parse_expression());
    } else if (!call.named.empty()) {
      fail("positional argument after a named one");
    } else {
      call.children.push_back(parse_expression());
    }
    if (!take_operator(",")) {
      break;
    }
  }
  expect_operator(")");
}

ExprPtr ExpressionParser::parse_filters(ExprPtr node) {
  while (true) {
    if (take_operator("|")) {
      node = wrap(ExprKind::kFilter, std::move(node));
      node->name = expect_name();
      if (is_operator("(")) {
        parse_arguments(*node);
      }
    } else if (take_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_operator("(")) {
      node = wrap(ExprKind::kCall, std::move(node));
      parse_arguments(*node);
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_test(ExprPtr node) {
  const bool negated = take_name("not");
  node = wrap(ExprKind::kTest, std::move(node));
  node->name = expect_name();
  const TokenKind kind = current().kind;
  if (is_operator("(")) {
    parse_arguments(*node);
  } else if (is_operator("[") || is_operator("{") || kind == TokenKind::kString ||
             kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             (kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) {
      fail("tests cannot be chained with is");
    }
    node->children.push_back(parse_postfix(parse_primary()));
  }
  return negated ? wrap(ExprKind::kNot, std::move(node)) : std::move(node);
}

}  // namespace longhaul::text::jinja
