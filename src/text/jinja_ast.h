// The syntax tree of a Jinja template.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace longhaul::text::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;

enum class ExprKind {
  kLiteral,    // value
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value …
  kNegate,     // children[0]
  kPlus,       // children[0]
  kNot,        // children[0]
  kAnd,        // children[0], children[1]
  kOr,         // children[0], children[1]
  kBinary,     // name = + - * / // % **
  kConcat,     // children
  kCompare,    // children[0] names[0] children[1] names[1] …
  kCondition,  // children: then, condition, else or null
  kAttribute,  // children[0] . name
  kItem,       // children[0] [ children[1] ]
  kSlice,      // children[0] [ children[1] : children[2] : children[3] ], each may be null
  kCall,       // children[0] ( rest, named )
  kFilter,     // children[0] | name ( rest, named )
  kTest,       // children[0] is name ( rest, named )
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  std::size_t line = 0;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<std::string> names;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

enum class StmtKind {
  kText,      // text
  kOutput,    // expr
  kIf,        // expr, body, otherwise
  kFor,       // target in expr if condition: body, else otherwise
  kSet,       // target = expr
  kSetBlock,  // target = what body renders
  kMacro,     // text (name), parameters, body
  kScope,     // body, with its own variables (generation)
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExprPtr otherwise;  // default value, may be null
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  std::size_t line = 0;
  std::string text;
  ExprPtr target;  // kName, kTuple of names, or kAttribute (namespace)
  ExprPtr expr;
  ExprPtr condition;
  std::vector<StmtPtr> body;
  std::vector<StmtPtr> otherwise;
  std::vector<Parameter> parameters;
};

}  // namespace longhaul::text::jinja
