// Walks the tree of a Jinja template with a set of variables and collects what it prints.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"

namespace longhaul::text::jinja {

/// Variables of one scope; names not found here are looked up in the parent.
struct Frame {
  std::shared_ptr<Frame> parent;
  std::map<std::string, Value, std::less<>> variables;
};

class Evaluator {
 public:
  explicit Evaluator(const std::string& where) : where_(where) {}

  /// Runs a whole template; UserError `where:line` for what Jinja refuses or we do not know.
  std::string run(const std::vector<StmtPtr>& statements, const Dict& variables);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  using FramePtr = std::shared_ptr<Frame>;

  Flow run_body(const std::vector<StmtPtr>& body, const FramePtr& frame);
  Flow run_statement(const Stmt& statement, const FramePtr& frame);
  Flow run_for(const Stmt& statement, const FramePtr& frame);
  void define_macro(const Stmt& statement, const FramePtr& frame);
  Value call_macro(const Stmt& macro, const FramePtr& closure, const Arguments& arguments);
  std::string capture(const std::vector<StmtPtr>& body, const FramePtr& frame);
  void assign(const Expr& target, const Value& value, const FramePtr& frame);
  void print(std::string_view text);

  Value evaluate(const Expr& expr, const FramePtr& frame);
  [[nodiscard]] Value look_up(const std::string& name, const FramePtr& frame) const;
  Value evaluate_compare(const Expr& expr, const FramePtr& frame);
  Value evaluate_call(const Expr& expr, const FramePtr& frame);
  Value evaluate_slice(const Expr& expr, const FramePtr& frame);
  Value evaluate_dict(const Expr& expr, const FramePtr& frame);
  std::vector<Value> evaluate_all(const Expr& expr, const FramePtr& frame);
  Arguments arguments_of(const Expr& expr, const FramePtr& frame);
  void count_step();

  const std::string& where_;
  std::string output_;
  std::size_t steps_ = 0;
  int macro_depth_ = 0;
};

/// `left op right` for + - * / // % **
Value binary_operation(const std::string& name, const Value& left, const Value& right);

}  // namespace longhaul::text::jinja
