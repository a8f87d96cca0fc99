#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "text/jinja_filters.h"
#include "text/jinja_sequences.h"

namespace longhaul::text::jinja {
namespace {

using Test = bool (*)(const Value& value, const Arguments& arguments);

const Value& operand(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    throw Fault{"the test needs one argument"};
  }
  return arguments.positional[0];
}

std::int64_t integer_of(const Value& value) {
  const auto integer = value.as_integer();
  if (!integer) {
    throw Fault{"the test needs a whole number"};
  }
  return *integer;
}

bool is_mapping(const Value& value) {
  return value.as_dict() != nullptr && !value.as_dict()->is_namespace;
}

bool is_sequence(const Value& value) {
  return value.as_text() != nullptr || value.as_list() != nullptr || is_mapping(value) ||
         value.is_undefined();
}

/// Python's `is` on what the evaluator can tell apart.
bool same(const Value& value, const Arguments& arguments) {
  const Value& other = operand(arguments);
  if (value.as<bool>() != nullptr || other.as<bool>() != nullptr) {
    return value.as<bool>() != nullptr && other.as<bool>() != nullptr && equal(value, other);
  }
  if (value.is_none() || other.is_none()) {
    return value.is_none() && other.is_none();
  }
  throw Fault{"sameas is supported for true, false and none only"};
}

template <bool upper>
bool has_case(const Value& value, const Arguments& /*arguments*/) {
  const std::string text = value.str();
  const std::string mapped = upper ? to_upper(text) : to_lower(text);
  return mapped == text && to_upper(text) != to_lower(text);
}

struct TestRow {
  std::string_view name;
  std::size_t operands;
  Test test;
};

constexpr std::array kTests = std::to_array<TestRow>({
    {"defined", 0, [](const Value& v, const Arguments&) { return !v.is_undefined(); }},
    {"undefined", 0, [](const Value& v, const Arguments&) { return v.is_undefined(); }},
    {"none", 0, [](const Value& v, const Arguments&) { return v.is_none(); }},
    {"boolean", 0, [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr; }},
    {"true", 0,
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && v.truthy(); }},
    {"false", 0,
     [](const Value& v, const Arguments&) { return v.as<bool>() != nullptr && !v.truthy(); }},
    {"string", 0, [](const Value& v, const Arguments&) { return v.as_text() != nullptr; }},
    {"number", 0, [](const Value& v, const Arguments&) { return v.as_number().has_value(); }},
    {"integer", 0,
     [](const Value& v, const Arguments&) { return v.as<std::int64_t>() != nullptr; }},
    {"float", 0, [](const Value& v, const Arguments&) { return v.as<double>() != nullptr; }},
    {"mapping", 0, [](const Value& v, const Arguments&) { return is_mapping(v); }},
    {"sequence", 0, [](const Value& v, const Arguments&) { return is_sequence(v); }},
    {"iterable", 0, [](const Value& v, const Arguments&) { return is_sequence(v); }},
    {"callable", 0,
     [](const Value& v, const Arguments&) {
       return v.as<std::shared_ptr<Callable>>() != nullptr || v.is_undefined();
     }},
    {"odd", 0, [](const Value& v, const Arguments&) { return integer_of(v) % 2 != 0; }},
    {"even", 0, [](const Value& v, const Arguments&) { return integer_of(v) % 2 == 0; }},
    {"divisibleby", 1,
     [](const Value& v, const Arguments& a) {
       const std::int64_t divisor = integer_of(operand(a));
       if (divisor == 0 || divisor == -1) {
         throw Fault{"divisibleby with this number is not supported"};
       }
       return integer_of(v) % divisor == 0;
     }},
    {"eq", 1, [](const Value& v, const Arguments& a) { return equal(v, operand(a)); }},
    {"equalto", 1, [](const Value& v, const Arguments& a) { return equal(v, operand(a)); }},
    {"==", 1, [](const Value& v, const Arguments& a) { return equal(v, operand(a)); }},
    {"ne", 1, [](const Value& v, const Arguments& a) { return !equal(v, operand(a)); }},
    {"!=", 1, [](const Value& v, const Arguments& a) { return !equal(v, operand(a)); }},
    {"lt", 1, [](const Value& v, const Arguments& a) { return compare(v, operand(a)) < 0; }},
    {"lessthan", 1, [](const Value& v, const Arguments& a) { return compare(v, operand(a)) < 0; }},
    {"le", 1, [](const Value& v, const Arguments& a) { return compare(v, operand(a)) <= 0; }},
    {"gt", 1, [](const Value& v, const Arguments& a) { return compare(v, operand(a)) > 0; }},
    {"greaterthan", 1,
     [](const Value& v, const Arguments& a) { return compare(v, operand(a)) > 0; }},
    {"ge", 1, [](const Value& v, const Arguments& a) { return compare(v, operand(a)) >= 0; }},
    {"in", 1, [](const Value& v, const Arguments& a) { return contains(operand(a), v); }},
    {"sameas", 1, same},
    {"upper", 0, has_case<true>},
    {"lower", 0, has_case<false>},
});

}  // namespace

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto* const at = std::find_if(kTests.begin(), kTests.end(),
                                      [name](const TestRow& row) { return row.name == name; });
  if (at == kTests.end()) {
    throw Fault{fmt::format("test '{}' is not supported", name)};
  }
  if (arguments.positional.size() != at->operands || !arguments.named.empty()) {
    throw Fault{fmt::format("test '{}' takes {} arguments", name, at->operands)};
  }
  return at->test(value, arguments);
}

}  // namespace longhaul::text::jinja
