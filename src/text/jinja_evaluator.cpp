#include "text/jinja_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "text/jinja_filters.h"
#include "text/jinja_lexer.h"
#include "text/jinja_sequences.h"

namespace longhaul::text::jinja {
namespace {

constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20U;
constexpr std::size_t kMaxSteps = 200'000;  // a real template needs some thousand
constexpr int kMaxMacroDepth = 40;
constexpr std::int64_t kMaxRange = 100'000;  // as Jinja's sandbox

Value range_of(const Arguments& arguments) {
  std::vector<std::int64_t> bounds;
  for (const Value& value : arguments.positional) {
    const auto bound = value.as_integer();
    if (!bound) {
      throw Fault{"range needs whole numbers"};
    }
    bounds.push_back(*bound);
  }
  if (bounds.empty() || bounds.size() > 3 || !arguments.named.empty()) {
    throw Fault{"range needs one to three arguments"};
  }
  const std::int64_t start = bounds.size() > 1 ? bounds[0] : 0;
  const std::int64_t stop = bounds.size() > 1 ? bounds[1] : bounds[0];
  const std::int64_t step = bounds.size() > 2 ? bounds[2] : 1;
  constexpr std::int64_t kFar = std::int64_t{1} << 40U;
  if (step == 0 || std::max({start, stop, step}) > kFar || std::min({start, stop, step}) < -kFar) {
    throw Fault{"range out of bounds"};
  }
  std::vector<Value> values;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<std::int64_t>(values.size()) == kMaxRange) {
      throw Fault{"range too long"};
    }
    values.push_back(Value::integer(i));
  }
  return Value::list(std::move(values));
}

/// namespace(a=1) and dict(a=1).
Value mapping_of(const Arguments& arguments, bool is_namespace) {
  auto dict = std::make_shared<Dict>();
  if (!arguments.positional.empty()) {
    const Dict* const source = arguments.positional[0].as_dict();
    if (source == nullptr || arguments.positional.size() > 1) {
      throw Fault{"namespace and dict take named arguments or one mapping"};
    }
    dict->items = source->items;
  }
  for (const auto& [name, value] : arguments.named) {
    dict->set(name, value);
  }
  dict->is_namespace = is_namespace;
  return Value::Data(std::move(dict));
}

Value strftime_now(const Arguments& arguments) {
  const Value* const format = arguments.get(0, "format");
  if (format == nullptr || format->as_text() == nullptr || arguments.positional.size() > 1) {
    throw Fault{"strftime_now needs a format"};
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(256 + format->as_text()->size() * 16, '\0');
  text.resize(std::strftime(text.data(), text.size(), format->as_text()->c_str(), &local));
  return Value::text(std::move(text));
}

Value raise_exception(const Arguments& arguments) {
  throw Fault{"the template refuses: " +
              (arguments.positional.empty() ? std::string() : arguments.positional[0].str())};
}

void add_globals(Frame& frame) {
  const auto add = [&frame](const char* name, std::function<Value(const Arguments&)> function) {
    frame.variables.emplace(name, Value::callable(name, std::move(function)));
  };
  add("range", range_of);
  add("namespace", [](const Arguments& arguments) { return mapping_of(arguments, true); });
  add("dict", [](const Arguments& arguments) { return mapping_of(arguments, false); });
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
  for (const char* const name : {"cycler", "joiner", "lipsum"}) {
    add(name, [name](const Arguments&) -> Value {
      throw Fault{fmt::format("function '{}' is not supported", name)};
    });
  }
}

/// The `loop` variable of one iteration.
Value loop_value(const std::vector<Value>& items, std::size_t index) {
  auto loop = std::make_shared<Dict>();
  loop->is_namespace = true;
  const auto size = static_cast<std::int64_t>(items.size());
  const auto at = static_cast<std::int64_t>(index);
  const auto add = [&loop](const char* name, Value value) {
    loop->items.emplace_back(name, std::move(value));
  };
  add("index", Value::integer(at + 1));
  add("index0", Value::integer(at));
  add("revindex", Value::integer(size - at));
  add("revindex0", Value::integer(size - at - 1));
  add("first", Value::boolean(index == 0));
  add("last", Value::boolean(at == size - 1));
  add("length", Value::integer(size));
  add("depth", Value::integer(1));
  add("depth0", Value::integer(0));
  add("previtem", index == 0 ? Value::undefined("there is no previous item") : items[index - 1]);
  add("nextitem", at == size - 1 ? Value::undefined("there is no next item") : items[index + 1]);
  add("cycle", Value::callable("cycle", [index](const Arguments& arguments) {
        if (arguments.positional.empty()) {
          throw Fault{"cycle needs values"};
        }
        return arguments.positional[index % arguments.positional.size()];
      }));
  add("changed", Value::callable("changed", [](const Arguments&) -> Value {
        throw Fault{"loop.changed is not supported"};
      }));
  return Value::Data(std::move(loop));
}

}  // namespace

std::string Evaluator::run(const std::vector<StmtPtr>& statements, const Dict& variables) {
  auto globals = std::make_shared<Frame>();
  add_globals(*globals);
  for (const auto& [name, value] : variables.items) {
    globals->variables.insert_or_assign(name, value);
  }
  auto top = std::make_shared<Frame>();
  top->parent = std::move(globals);
  output_.clear();
  steps_ = 0;
  run_body(statements, top);
  return std::move(output_);
}

void Evaluator::count_step() {
  if (++steps_ > kMaxSteps) {
    throw Fault{"the template runs too long"};
  }
}

void Evaluator::print(std::string_view text) {
  if (output_.size() + text.size() > kMaxOutputBytes) {
    throw Fault{"the template prints too much"};
  }
  output_ += text;
}

Evaluator::Flow Evaluator::run_body(const std::vector<StmtPtr>& body, const FramePtr& frame) {
  for (const StmtPtr& statement : body) {
    Flow flow = Flow::kNext;
    try {
      flow = run_statement(*statement, frame);
    } catch (const Fault& fault) {
      fail_at(where_, statement->line, fault.what());
    }
    if (flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_statement(const Stmt& statement, const FramePtr& frame) {
  count_step();
  switch (statement.kind) {
    case StmtKind::kText:
      print(statement.text);
      break;
    case StmtKind::kOutput:
      print(evaluate(*statement.expr, frame).str());
      break;
    case StmtKind::kIf:
      return run_body(
          evaluate(*statement.expr, frame).truthy() ? statement.body : statement.otherwise, frame);
    case StmtKind::kFor:
      return run_for(statement, frame);
    case StmtKind::kSet:
      assign(*statement.target, evaluate(*statement.expr, frame), frame);
      break;
    case StmtKind::kSetBlock: {
      auto inner = std::make_shared<Frame>();
      inner->parent = frame;
      assign(*statement.target, Value::text(capture(statement.body, inner)), frame);
      break;
    }
    case StmtKind::kMacro:
      define_macro(statement, frame);
      break;
    case StmtKind::kScope: {
      auto inner = std::make_shared<Frame>();
      inner->parent = frame;
      return run_body(statement.body, inner);
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_for(const Stmt& statement, const FramePtr& frame) {
  std::vector<Value> items;
  for (Value& item : evaluate(*statement.expr, frame).elements()) {
    if (statement.condition != nullptr) {
      auto inner = std::make_shared<Frame>();
      inner->parent = frame;
      assign(*statement.target, item, inner);
      if (!evaluate(*statement.condition, inner).truthy()) {
        continue;
      }
    }
    items.push_back(std::move(item));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    count_step();
    auto inner = std::make_shared<Frame>();
    inner->parent = frame;
    inner->variables.emplace("loop", loop_value(items, i));
    assign(*statement.target, items[i], inner);
    if (run_body(statement.body, inner) == Flow::kBreak) {
      break;
    }
  }
  return items.empty() ? run_body(statement.otherwise, frame) : Flow::kNext;
}

void Evaluator::assign(const Expr& target, const Value& value, const FramePtr& frame) {
  if (target.kind == ExprKind::kName) {
    frame->variables.insert_or_assign(target.name, value);
    return;
  }
  if (target.kind == ExprKind::kAttribute) {
    const std::string& name = target.children[0]->name;
    Dict* const space = look_up(name, frame).as_namespace();
    if (space == nullptr || name == "loop") {
      throw Fault{fmt::format("cannot set attributes of '{}', it is no namespace", name)};
    }
    space->set(target.name, value);
    return;
  }
  const std::vector<Value> parts = value.elements();
  if (parts.size() != target.children.size()) {
    throw Fault{fmt::format("{} values for {} names", parts.size(), target.children.size())};
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    frame->variables.insert_or_assign(target.children[i]->name, parts[i]);
  }
}

std::string Evaluator::capture(const std::vector<StmtPtr>& body, const FramePtr& frame) {
  std::string outer = std::exchange(output_, {});
  run_body(body, frame);
  return std::exchange(output_, std::move(outer));
}

void Evaluator::define_macro(const Stmt& statement, const FramePtr& frame) {
  // The frame owns the macro: a strong reference back would keep both alive for ever.
  const std::weak_ptr<Frame> closure = frame;
  frame->variables.insert_or_assign(
      statement.text,
      Value::callable(statement.text, [this, &statement, closure](const Arguments& arguments) {
        const FramePtr scope = closure.lock();
        if (scope == nullptr) {
          throw Fault{fmt::format("macro '{}' is used outside its scope", statement.text)};
        }
        return call_macro(statement, scope, arguments);
      }));
}

Value Evaluator::call_macro(const Stmt& macro, const FramePtr& closure,
                            const Arguments& arguments) {
  if (arguments.positional.size() > macro.parameters.size()) {
    throw Fault{fmt::format("too many arguments for macro '{}'", macro.text)};
  }
  for (const auto& [name, value] : arguments.named) {
    const auto at = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                 [&name = name](const Parameter& p) { return p.name == name; });
    if (at == macro.parameters.end() ||
        at - macro.parameters.begin() < static_cast<std::ptrdiff_t>(arguments.positional.size())) {
      throw Fault{fmt::format("macro '{}' does not take '{}'", macro.text, name)};
    }
  }
  if (++macro_depth_ > kMaxMacroDepth) {
    throw Fault{"macros call each other too deep"};
  }
  auto frame = std::make_shared<Frame>();
  frame->parent = closure;
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* const given = arguments.get(i, parameter.name);
    if (given != nullptr) {
      frame->variables.insert_or_assign(parameter.name, *given);
    } else {
      frame->variables.insert_or_assign(
          parameter.name, parameter.otherwise == nullptr ? Value::undefined(parameter.name)
                                                         : evaluate(*parameter.otherwise, frame));
    }
  }
  for (const char* const name : {"caller", "varargs", "kwargs"}) {
    frame->variables.emplace(name, Value::callable(name, [name](const Arguments&) -> Value {
                               throw Fault{fmt::format("'{}' is not supported", name)};
                             }));
  }
  std::string text = capture(macro.body, frame);
  --macro_depth_;
  return Value::text(std::move(text));
}

Value Evaluator::look_up(const std::string& name, const FramePtr& frame) const {
  for (const Frame* scope = frame.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const auto at = scope->variables.find(name); at != scope->variables.end()) {
      return at->second;
    }
  }
  return Value::undefined(name);
}

Value Evaluator::evaluate(const Expr& expr, const FramePtr& frame) {
  count_step();
  const auto child = [&](std::size_t index) { return evaluate(*expr.children[index], frame); };
  switch (expr.kind) {
    case ExprKind::kLiteral:
      return expr.value;
    case ExprKind::kName:
      return look_up(expr.name, frame);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return Value::list(evaluate_all(expr, frame), expr.kind == ExprKind::kTuple);
    case ExprKind::kDict:
      return evaluate_dict(expr, frame);
    case ExprKind::kNegate:
      return binary_operation("-", Value::integer(0), child(0));
    case ExprKind::kPlus:
      return binary_operation("+", Value::integer(0), child(0));
    case ExprKind::kNot:
      return Value::boolean(!child(0).truthy());
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = child(0);
      return left.truthy() == (expr.kind == ExprKind::kAnd) ? child(1) : left;
    }
    case ExprKind::kBinary:
      return binary_operation(expr.name, child(0), child(1));
    case ExprKind::kConcat: {
      std::string text;
      for (const Value& value : evaluate_all(expr, frame)) {
        text += value.str();
      }
      return Value::text(std::move(text));
    }
    case ExprKind::kCompare:
      return evaluate_compare(expr, frame);
    case ExprKind::kCondition:
      if (child(1).truthy()) {
        return child(0);
      }
      return expr.children[2] == nullptr ? Value::undefined("the missing else of an inline if")
                                         : child(2);
    case ExprKind::kAttribute:
      return attribute_of(child(0), expr.name);
    case ExprKind::kItem:
      return item_of(child(0), child(1));
    case ExprKind::kSlice:
      return evaluate_slice(expr, frame);
    case ExprKind::kCall:
      return evaluate_call(expr, frame);
    case ExprKind::kFilter:
      return apply_filter(expr.name, child(0), arguments_of(expr, frame));
    case ExprKind::kTest:
      return Value::boolean(apply_test(expr.name, child(0), arguments_of(expr, frame)));
  }
  return {};
}

std::vector<Value> Evaluator::evaluate_all(const Expr& expr, const FramePtr& frame) {
  std::vector<Value> values;
  for (const ExprPtr& child : expr.children) {
    values.push_back(evaluate(*child, frame));
  }
  return values;
}

Value Evaluator::evaluate_dict(const Expr& expr, const FramePtr& frame) {
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i < expr.children.size(); i += 2) {
    const Value key = evaluate(*expr.children[i], frame);
    if (key.as_text() == nullptr) {
      throw Fault{"only texts are supported as keys of a mapping"};
    }
    dict->set(*key.as_text(), evaluate(*expr.children[i + 1], frame));
  }
  return Value::Data(std::move(dict));
}

Value Evaluator::evaluate_compare(const Expr& expr, const FramePtr& frame) {
  Value left = evaluate(*expr.children[0], frame);
  for (std::size_t i = 0; i < expr.names.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1], frame);
    const std::string& name = expr.names[i];
    bool holds = false;
    if (name == "==" || name == "!=") {
      holds = equal(left, right) == (name == "==");
    } else if (name == "in" || name == "not in") {
      holds = contains(right, left) == (name == "in");
    } else {
      const int order = compare(left, right);
      holds = name == "<"    ? order < 0
              : name == "<=" ? order <= 0
              : name == ">"  ? order > 0
                             : order >= 0;
    }
    if (!holds) {
      return Value::boolean(false);
    }
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_call(const Expr& expr, const FramePtr& frame) {
  const Value callee = evaluate(*expr.children[0], frame);
  const auto* const callable = callee.as<std::shared_ptr<Callable>>();
  if (callable == nullptr) {
    throw Fault{callee.is_undefined()
                    ? fmt::format("'{}' is undefined", callee.as<Undefined>()->name)
                    : fmt::format("'{}' object is not callable", callee.type_name())};
  }
  return (*callable)->call(arguments_of(expr, frame));
}

Value Evaluator::evaluate_slice(const Expr& expr, const FramePtr& frame) {
  const auto bound = [&](std::size_t index) -> std::optional<std::int64_t> {
    if (expr.children[index] == nullptr) {
      return std::nullopt;
    }
    const Value value = evaluate(*expr.children[index], frame);
    if (value.is_none()) {
      return std::nullopt;
    }
    const auto integer = value.as_integer();
    if (!integer) {
      throw Fault{"slice bounds must be whole numbers"};
    }
    return integer;
  };
  const Value sequence = evaluate(*expr.children[0], frame);
  return slice(sequence, bound(1), bound(2), bound(3));
}

Arguments Evaluator::arguments_of(const Expr& expr, const FramePtr& frame) {
  Arguments arguments;
  for (std::size_t i = 1; i < expr.children.size(); ++i) {
    arguments.positional.push_back(evaluate(*expr.children[i], frame));
  }
  for (const auto& [name, child] : expr.named) {
    arguments.named.emplace_back(name, evaluate(*child, frame));
  }
  return arguments;
}

}  // namespace longhaul::text::jinja
