#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja_expression_parser.h"
#include "text/jinja_lexer.h"

namespace longhaul::text::jinja {
namespace {

constexpr int kMaxNesting = 60;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where) : cursor_(std::move(tokens), where) {}

  std::vector<StmtPtr> run() { return body({}); }

 private:
  /// Statements up to one of the end tags, whose name is left at the cursor (the end of the source
  /// for none).
  std::vector<StmtPtr> body(std::initializer_list<std::string_view> ends) {
    if (++nesting_ > kMaxNesting) {
      cursor_.fail("tags nested too deep");
    }
    std::vector<StmtPtr> statements;
    while (cursor_.current().kind != TokenKind::kEnd) {
      const TokenKind kind = cursor_.current().kind;
      if (kind == TokenKind::kText) {
        StmtPtr text = make(StmtKind::kText);
        text->text = cursor_.advance().text;
        statements.push_back(std::move(text));
      } else if (kind == TokenKind::kOutputOpen) {
        statements.push_back(output());
      } else {
        cursor_.expect(TokenKind::kBlockOpen, "a tag");
        const std::string& name = cursor_.current().text;
        if (cursor_.current().kind == TokenKind::kName &&
            std::find(ends.begin(), ends.end(), name) != ends.end()) {
          --nesting_;
          return statements;
        }
        statements.push_back(tag());
      }
    }
    if (ends.size() != 0) {
      cursor_.fail(fmt::format("tag without its {}", *(ends.end() - 1)));
    }
    --nesting_;
    return statements;
  }

  [[nodiscard]] StmtPtr make(StmtKind kind) const {
    auto statement = std::make_unique<Stmt>();
    statement->kind = kind;
    statement->line = cursor_.current().line;
    return statement;
  }

  void close() { cursor_.expect(TokenKind::kBlockClose, "the end of the tag"); }

  /// The end tag `name` at the cursor.
  void end(std::string_view name) {
    if (!cursor_.take_name(name)) {
      cursor_.fail(fmt::format("expected {}", name));
    }
    close();
  }

  StmtPtr output() {
    StmtPtr statement = make(StmtKind::kOutput);
    cursor_.advance();
    statement->expr = cursor_.parse_tuple(Inline::kYes);
    cursor_.expect(TokenKind::kOutputClose, "the end of the output tag");
    return statement;
  }

  StmtPtr tag() {
    if (cursor_.take_name("if")) {
      return if_tag();
    }
    if (cursor_.take_name("for")) {
      return for_tag();
    }
    if (cursor_.take_name("set")) {
      return set_tag();
    }
    if (cursor_.take_name("macro")) {
      return macro_tag();
    }
    if (cursor_.take_name("generation")) {
      StmtPtr statement = make(StmtKind::kScope);
      close();
      statement->body = body({"endgeneration"});
      end("endgeneration");
      return statement;
    }
    for (const auto& [name, kind] :
         {std::pair{"break", StmtKind::kBreak}, std::pair{"continue", StmtKind::kContinue}}) {
      if (cursor_.take_name(name)) {
        if (loops_ == 0) {
          cursor_.fail(fmt::format("{} outside a loop", name));
        }
        StmtPtr statement = make(kind);
        close();
        return statement;
      }
    }
    cursor_.fail(fmt::format("tag '{}' is not supported", cursor_.current().text));
  }

  StmtPtr if_tag() {
    StmtPtr statement = make(StmtKind::kIf);
    statement->expr = cursor_.parse_tuple(Inline::kNo);
    close();
    statement->body = body({"elif", "else", "endif"});
    if (cursor_.take_name("elif")) {
      statement->otherwise.push_back(if_tag());  // consumes endif
      return statement;
    }
    if (cursor_.take_name("else")) {
      close();
      statement->otherwise = body({"endif"});
    }
    end("endif");
    return statement;
  }

  StmtPtr for_tag() {
    StmtPtr statement = make(StmtKind::kFor);
    statement->target = cursor_.parse_target();
    if (!cursor_.take_name("in")) {
      cursor_.fail("expected in");
    }
    statement->expr = cursor_.parse_tuple(Inline::kNo);
    if (cursor_.take_name("if")) {
      statement->condition = cursor_.parse_expression();
    }
    if (cursor_.is_name("recursive")) {
      cursor_.fail("recursive loops are not supported");
    }
    close();
    ++loops_;
    statement->body = body({"else", "endfor"});
    --loops_;
    if (cursor_.take_name("else")) {
      close();
      statement->otherwise = body({"endfor"});
    }
    end("endfor");
    return statement;
  }

  StmtPtr set_tag() {
    StmtPtr statement = make(StmtKind::kSet);
    statement->target = cursor_.parse_target();
    if (cursor_.take_operator("=")) {
      statement->expr = cursor_.parse_tuple(Inline::kYes);
      close();
      return statement;
    }
    if (cursor_.is_operator("|")) {
      cursor_.fail("a filtered set block is not supported");
    }
    statement->kind = StmtKind::kSetBlock;
    close();
    statement->body = body({"endset"});
    end("endset");
    return statement;
  }

  StmtPtr macro_tag() {
    StmtPtr statement = make(StmtKind::kMacro);
    statement->text = cursor_.expect_name();
    cursor_.expect_operator("(");
    while (!cursor_.is_operator(")")) {
      Parameter parameter{cursor_.expect_name(), nullptr};
      if (cursor_.take_operator("=")) {
        parameter.otherwise = cursor_.parse_expression();
      } else if (!statement->parameters.empty() &&
                 statement->parameters.back().otherwise != nullptr) {
        cursor_.fail("parameter without a default after one with a default");
      }
      statement->parameters.push_back(std::move(parameter));
      if (!cursor_.take_operator(",")) {
        break;
      }
    }
    cursor_.expect_operator(")");
    close();
    const int loops = std::exchange(loops_, 0);
    statement->body = body({"endmacro"});
    loops_ = loops;
    end("endmacro");
    return statement;
  }

  ExpressionParser cursor_;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<StmtPtr> parse_template(std::string_view source, const std::string& where) {
  return Parser(tokenize_template(source, where), where).run();
}

}  // namespace longhaul::text::jinja
