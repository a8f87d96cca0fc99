#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "text/jinja_evaluator.h"

namespace longhaul::text::jinja {
namespace {

constexpr std::size_t kMaxRepeated = std::size_t{1} << 20U;

[[noreturn]] void overflow() { throw Fault{"whole numbers beyond 64 bits are not supported"}; }

std::int64_t floor_divide(std::int64_t left, std::int64_t right) {
  const std::int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) {
      throw Fault{"division by zero"};
    }
    return {std::pow(static_cast<double>(base), static_cast<double>(exponent))};
  }
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent && result != 0; ++i) {
    if (__builtin_mul_overflow(result, base, &result) || i > 4096) {
      overflow();
    }
  }
  return Value::integer(result);
}

Value integer_operation(const std::string& name, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  if (name == "+" || name == "-" || name == "*") {
    const bool too_big = name == "+"   ? __builtin_add_overflow(left, right, &result)
                         : name == "-" ? __builtin_sub_overflow(left, right, &result)
                                       : __builtin_mul_overflow(left, right, &result);
    if (too_big) {
      overflow();
    }
    return Value::integer(result);
  }
  if (name == "**") {
    return integer_power(left, right);
  }
  if (right == 0) {
    throw Fault{"division by zero"};
  }
  if (name == "/") {
    return {static_cast<double>(left) / static_cast<double>(right)};
  }
  if (right == -1) {
    return name == "//" ? integer_operation("-", 0, left) : Value::integer(0);
  }
  const std::int64_t quotient = floor_divide(left, right);
  return Value::integer(name == "//" ? quotient : left - quotient * right);
}

Value float_operation(const std::string& name, double left, double right) {
  if (name == "+") {
    return {left + right};
  }
  if (name == "-") {
    return {left - right};
  }
  if (name == "*") {
    return {left * right};
  }
  if (name == "**") {
    return {std::pow(left, right)};
  }
  if (right == 0) {
    throw Fault{"division by zero"};
  }
  if (name == "/") {
    return {left / right};
  }
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
  }
  return {name == "%" ? remainder : std::floor((left - remainder) / right + 0.5)};
}

std::size_t repeats(std::int64_t count, std::size_t size) {
  const auto times = static_cast<std::size_t>(count > 0 ? count : 0);
  if (size != 0 && times > kMaxRepeated / size) {
    throw Fault{"a repeated value grows too large"};
  }
  return size == 0 ? 0 : times;
}

Value repeated(const Value& value, std::int64_t count) {
  if (const std::string* const text = value.as_text()) {
    std::string out;
    for (std::size_t left = repeats(count, text->size()); left > 0; --left) {
      out += *text;
    }
    return Value::text(std::move(out));
  }
  const List& list = *value.as_list();
  std::vector<Value> items;
  for (std::size_t left = repeats(count, list.items.size()); left > 0; --left) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return Value::list(std::move(items), list.is_tuple);
}

}  // namespace

Value binary_operation(const std::string& name, const Value& left, const Value& right) {
  for (const Value* const value : {&left, &right}) {
    if (value->is_undefined()) {
      throw Fault{fmt::format("'{}' is undefined", value->as<Undefined>()->name)};
    }
  }
  const auto whole_left = left.as_integer();
  const auto whole_right = right.as_integer();
  if (whole_left && whole_right) {
    return integer_operation(name, *whole_left, *whole_right);
  }
  const auto number_left = left.as_number();
  const auto number_right = right.as_number();
  if (number_left && number_right) {
    return float_operation(name, *number_left, *number_right);
  }
  if (name == "+" && left.as_text() != nullptr && right.as_text() != nullptr) {
    return Value::text(*left.as_text() + *right.as_text());
  }
  const List* const list_left = left.as_list();
  const List* const list_right = right.as_list();
  if (name == "+" && list_left != nullptr && list_right != nullptr &&
      list_left->is_tuple == list_right->is_tuple) {
    std::vector<Value> items = list_left->items;
    items.insert(items.end(), list_right->items.begin(), list_right->items.end());
    return Value::list(std::move(items), list_left->is_tuple);
  }
  const auto repeats_well = [](const Value& value) {
    return value.as_text() != nullptr || value.as_list() != nullptr;
  };
  if (name == "*" && whole_right && repeats_well(left)) {
    return repeated(left, *whole_right);
  }
  if (name == "*" && whole_left && repeats_well(right)) {
    return repeated(right, *whole_left);
  }
  throw Fault{fmt::format("operator {} is not supported for {} and {}", name, left.type_name(),
                          right.type_name())};
}

}  // namespace longhaul::text::jinja
