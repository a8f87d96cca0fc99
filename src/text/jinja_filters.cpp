#include "text/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <set>
#include <utility>

#include "text/jinja_methods.h"
#include "text/jinja_sequences.h"

namespace longhaul::text::jinja {
namespace {

using Filter = Value (*)(const Value& value, const Arguments& arguments);

/// Refuses arguments a filter does not have, so that none is ignored.
void allow_arguments(const Arguments& arguments, std::size_t most,
                     std::initializer_list<std::string_view> names = {}) {
  if (arguments.positional.size() > most) {
    throw Fault{"too many arguments for a filter"};
  }
  for (const auto& [name, value] : arguments.named) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw Fault{fmt::format("filter argument '{}' is not supported", name)};
    }
  }
}

bool flag(const Arguments& arguments, std::size_t index, std::string_view name, bool absent) {
  const Value* const value = arguments.get(index, name);
  return value == nullptr ? absent : value->truthy();
}

Value trim(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 1, {"chars"});
  const Value* const set = arguments.get(0, "chars");
  if (set == nullptr || set->is_none()) {
    return Value::text(strip(value.str(), Ends::kBoth));
  }
  return Value::text(strip(value.str(), Ends::kBoth, set->str()));
}

Value tojson(const Value& value, const Arguments& arguments) {
  // transformers' own filter: tojson(x, ensure_ascii=False, indent=None, separators=None,
  // sort_keys=False)
  allow_arguments(arguments, 2, {"ensure_ascii", "indent", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(arguments, 0, "ensure_ascii", false);
  style.sort_keys = flag(arguments, 9, "sort_keys", false);
  if (const Value* const indent = arguments.get(1, "indent");
      indent != nullptr && !indent->is_none()) {
    const auto width = indent->as_integer();
    if (!width || *width < 0 || *width > 16) {
      throw Fault{"tojson indent out of range"};
    }
    style.indent = static_cast<int>(*width);
  }
  return Value::text(to_json_text(value, style));
}

Value length(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  return Value::integer(value.length());
}

Value otherwise(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 2, {"default_value", "boolean"});
  const bool missing =
      value.is_undefined() || (flag(arguments, 1, "boolean", false) && !value.truthy());
  if (!missing) {
    return value;
  }
  const Value* const replacement = arguments.get(0, "default_value");
  return replacement == nullptr ? Value::text("") : *replacement;
}

/// The value itself or, with `attribute`, what its dotted path leads to.
Value path_of(const Value& value, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) {
    return value;
  }
  if (const auto index = attribute->as_integer()) {
    return item_of(value, Value::integer(*index));
  }
  Value result = value;
  std::string_view rest = *attribute->as_text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string key(rest.substr(0, dot));
    const bool is_index =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    result = item_of(result, is_index ? Value::integer(std::stoll(key)) : Value::text(key));
    if (dot == std::string_view::npos) {
      return result;
    }
    rest.remove_prefix(dot + 1);
  }
}

const Value* attribute_argument(const Arguments& arguments, std::size_t index) {
  const Value* const attribute = arguments.get(index, "attribute");
  if (attribute != nullptr && attribute->as_text() == nullptr && !attribute->as_integer() &&
      !attribute->is_none()) {
    throw Fault{"attribute argument of another type"};
  }
  return attribute;
}

Value join(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 2, {"d", "attribute"});
  const Value* const separator = arguments.get(0, "d");
  const Value* const attribute = attribute_argument(arguments, 1);
  std::string out;
  bool first = true;
  for (const Value& item : value.elements()) {
    if (!first && separator != nullptr) {
      out += separator->str();
    }
    out += path_of(item, attribute).str();
    first = false;
  }
  return Value::text(std::move(out));
}

template <std::string (*mapping)(std::string_view)>
Value change_case(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  return Value::text(mapping(value.str()));
}

template <bool from_start>
Value end_element(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  const std::vector<Value> items = value.elements();
  if (items.empty()) {
    return Value::undefined("an element of an empty sequence");
  }
  return from_start ? items.front() : items.back();
}

Value replace(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 3, {"count"});
  if (arguments.positional.size() < 2) {
    throw Fault{"replace needs two arguments"};
  }
  const Value* const count = arguments.get(2, "count");
  if (count != nullptr && !count->is_none() && !count->as_integer()) {
    throw Fault{"replace count of another type"};
  }
  return Value::text(replace_all(value.str(), arguments.positional[0].str(),
                                 arguments.positional[1].str(),
                                 count == nullptr || count->is_none() ? -1 : *count->as_integer()));
}

Value as_string(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  return Value::text(value.str());
}

/// A number as Python's int() and float() read it: surrounding white space, a sign, plain digits.
std::optional<double> number_in(const std::string& text, bool whole) {
  const std::string bare = strip(text, Ends::kBoth);
  const std::string_view digits = std::string_view(bare).substr(bare.starts_with('+') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of(whole ? "-0123456789" : "+-.eE0123456789") !=
                            std::string_view::npos) {
    // Python also reads 1_000, inf and nan.
    if (bare.find('_') != std::string::npos || bare.ends_with("inf") || bare.ends_with("nan") ||
        bare.ends_with("infinity")) {
      throw Fault{"a number in a form that is not supported"};
    }
    return std::nullopt;
  }
  double number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return result.ec == std::errc() && result.ptr == digits.data() + digits.size()
             ? std::optional(number)
             : std::nullopt;
}

Value as_int(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 1, {"default"});
  if (const auto integer = value.as_integer()) {
    return Value::integer(*integer);
  }
  std::optional<double> number = value.as_number();
  if (const std::string* const text = value.as_text()) {
    number = number_in(*text, true);
    number = number ? number : number_in(*text, false);
  }
  if (number && std::abs(*number) < 9e15) {
    return Value::integer(static_cast<std::int64_t>(*number));
  }
  if (number && std::isfinite(*number)) {
    throw Fault{"int of a number that large is not supported"};
  }
  const Value* const replacement = arguments.get(0, "default");
  return replacement == nullptr ? Value::integer(0) : *replacement;
}

Value as_float(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 1, {"default"});
  if (const auto number = value.as_number()) {
    return {*number};
  }
  if (const std::string* const text = value.as_text()) {
    if (const auto number = number_in(*text, false)) {
      return {*number};
    }
  }
  const Value* const replacement = arguments.get(0, "default");
  return replacement == nullptr ? Value(0.0) : *replacement;
}

Value as_list(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  return Value::list(value.elements());
}

Value items(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  if (value.is_undefined()) {
    return Value::list({});
  }
  if (value.as_dict() == nullptr || value.as_dict()->is_namespace) {
    throw Fault{"items of a value that is no mapping"};
  }
  return find_method(value, "items")->as<std::shared_ptr<Callable>>()->get()->call({});
}

Value dictsort(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  if (value.as_dict() == nullptr) {
    throw Fault{"dictsort of a value that is no mapping"};
  }
  std::vector<Value> pairs = items(value, {}).elements();
  std::stable_sort(pairs.begin(), pairs.end(), [](const Value& a, const Value& b) {
    return to_lower(a.as_list()->items[0].str()) < to_lower(b.as_list()->items[0].str());
  });
  return Value::list(std::move(pairs));
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments rest = arguments;
  const auto skipped = std::min(count, rest.positional.size());
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(skipped));
  return rest;
}

const std::string& name_argument(const Arguments& arguments, std::size_t index) {
  if (index >= arguments.positional.size() || arguments.positional[index].as_text() == nullptr) {
    throw Fault{"the name of a filter, test or attribute is missing"};
  }
  return *arguments.positional[index].as_text();
}

Value map(const Value& value, const Arguments& arguments) {
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    allow_arguments(arguments, 0, {"attribute", "default"});
    const Value* const attribute = attribute_argument(arguments, 0);
    const Value* const replacement = arguments.get(0, "default");
    if (attribute == nullptr) {
      throw Fault{"map needs a filter or an attribute"};
    }
    for (const Value& item : value.elements()) {
      Value result = path_of(item, attribute);
      results.push_back(result.is_undefined() && replacement != nullptr ? *replacement : result);
    }
  } else {
    const std::string& filter = name_argument(arguments, 0);
    const Arguments rest = without_first(arguments, 1);
    for (const Value& item : value.elements()) {
      results.push_back(apply_filter(filter, item, rest));
    }
  }
  return Value::list(std::move(results));
}

/// select, reject, selectattr, rejectattr.
template <bool keep, bool by_attribute>
Value choose(const Value& value, const Arguments& arguments) {
  const Value* attribute = nullptr;
  Value path;
  if (by_attribute) {
    path = Value::text(name_argument(arguments, 0));
    attribute = &path;
  }
  const std::size_t at = by_attribute ? 1 : 0;
  const bool has_test = arguments.positional.size() > at;
  const Arguments rest = without_first(arguments, at + 1);
  std::vector<Value> chosen;
  for (const Value& item : value.elements()) {
    const Value subject = path_of(item, attribute);
    const bool holds =
        has_test ? apply_test(name_argument(arguments, at), subject, rest) : subject.truthy();
    if (holds == keep) {
      chosen.push_back(item);
    }
  }
  return Value::list(std::move(chosen));
}

/// What values are compared by when upper and lower case count as equal.
Value sort_key(const Value& value, bool case_sensitive) {
  const std::string* const text = value.as_text();
  return text == nullptr || case_sensitive ? value : Value::text(to_lower(*text));
}

Value sort(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 2, {"reverse", "case_sensitive", "attribute"});
  const bool reverse = flag(arguments, 0, "reverse", false);
  const bool case_sensitive = flag(arguments, 1, "case_sensitive", false);
  const Value* const attribute = attribute_argument(arguments, 2);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : value.elements()) {
    keyed.emplace_back(sort_key(path_of(item, attribute), case_sensitive), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> sorted;
  sorted.reserve(keyed.size());
  for (const auto& [key, item] : keyed) {
    sorted.push_back(item);
  }
  return Value::list(std::move(sorted));
}

Value unique(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 2, {"case_sensitive", "attribute"});
  const bool case_sensitive = flag(arguments, 0, "case_sensitive", false);
  const Value* const attribute = attribute_argument(arguments, 1);
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : value.elements()) {
    const Value key = sort_key(path_of(item, attribute), case_sensitive);
    if (!contains(Value::list(seen), key)) {
      seen.push_back(key);
      kept.push_back(item);
    }
  }
  return Value::list(std::move(kept));
}

Value reverse(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  if (value.as_text() != nullptr) {
    return slice(value, std::nullopt, std::nullopt, -1);
  }
  std::vector<Value> elements = value.elements();
  std::reverse(elements.begin(), elements.end());
  return Value::list(std::move(elements));
}

Value absolute(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 0);
  if (const auto integer = value.as_integer(); integer && *integer != INT64_MIN) {
    return Value::integer(std::abs(*integer));
  }
  if (const double* const number = value.as<double>()) {
    return {std::abs(*number)};
  }
  throw Fault{"abs of a value that is no number"};
}

Value indent(const Value& value, const Arguments& arguments) {
  allow_arguments(arguments, 3, {"width", "first", "blank"});
  const Value* const width = arguments.get(0, "width");
  std::string padding(4, ' ');
  if (width != nullptr && width->as_text() != nullptr) {
    padding = *width->as_text();
  } else if (width != nullptr) {
    const auto size = width->as_integer();
    if (!size || *size < 0 || *size > 256) {
      throw Fault{"indent width out of range"};
    }
    padding.assign(static_cast<std::size_t>(*size), ' ');
  }
  const bool first = flag(arguments, 1, "first", false);
  const bool blank = flag(arguments, 2, "blank", false);
  const std::string text = value.str();
  if (text.find_first_of("\r\v\f\x1c\x1d\x1e\x85") != std::string::npos) {
    throw Fault{"indent of text with other line ends than \\n is not supported"};
  }
  std::string out;
  std::size_t begin = 0;
  for (bool is_first = true; begin <= text.size(); is_first = false) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (is_first ? first : (blank || end > begin)) {
      out += padding;
    }
    out += text.substr(begin, end - begin);
    out += end < text.size() ? "\n" : "";
    begin = end + 1;
  }
  return Value::text(std::move(out));
}

struct FilterRow {
  std::string_view name;
  Filter filter;
};

constexpr std::array kFilters = std::to_array<FilterRow>({
    {"trim", trim},
    {"tojson", tojson},
    {"length", length},
    {"count", length},
    {"default", otherwise},
    {"d", otherwise},
    {"join", join},
    {"upper", change_case<to_upper>},
    {"lower", change_case<to_lower>},
    {"capitalize", change_case<capitalize>},
    {"first", end_element<true>},
    {"last", end_element<false>},
    {"replace", replace},
    {"string", as_string},
    {"int", as_int},
    {"float", as_float},
    {"list", as_list},
    {"items", items},
    {"dictsort", dictsort},
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
    {"sort", sort},
    {"unique", unique},
    {"reverse", reverse},
    {"abs", absolute},
    {"indent", indent},
});

}  // namespace

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const auto* const at = std::find_if(kFilters.begin(), kFilters.end(),
                                      [name](const FilterRow& row) { return row.name == name; });
  if (at == kFilters.end()) {
    throw Fault{fmt::format("filter '{}' is not supported", name)};
  }
  return at->filter(value, arguments);
}

Value attribute_of(const Value& value, std::string_view name) {
  if (value.is_undefined()) {
    throw Fault{fmt::format("'{}' is undefined", value.as<Undefined>()->name)};
  }
  if (name.starts_with("__")) {
    throw Fault{fmt::format("attribute '{}' is not supported", name)};
  }
  if (auto method = find_method(value, name)) {
    return *std::move(method);
  }
  if (const Dict* const dict = value.as_dict()) {
    if (const Value* const found = dict->find(name)) {
      return *found;
    }
  }
  return Value::undefined(fmt::format("{} object has no attribute {}", value.type_name(), name));
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) {
    throw Fault{fmt::format("'{}' is undefined", value.as<Undefined>()->name)};
  }
  if (const std::string* const name = key.as_text()) {
    if (const Dict* const dict = value.as_dict(); dict != nullptr) {
      if (const Value* const found = dict->find(*name)) {
        return *found;
      }
    }
    return attribute_of(value, *name);
  }
  if (const auto index = key.as_integer()) {
    if (auto element = element_at(value, *index)) {
      return *std::move(element);
    }
  }
  return Value::undefined(
      fmt::format("{} object has no element {}", value.type_name(), key.repr()));
}

}  // namespace longhaul::text::jinja
