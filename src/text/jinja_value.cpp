#include "text/jinja_value.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/unicode.h"

namespace longhaul::text::jinja {
namespace {

constexpr int kMaxValueDepth = 600;  // above what JSON input may hold

bool is_printable(char32_t value) {
  if (value < 0x80) {
    return value >= 0x20 && value < 0x7F;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

std::string text_repr(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const auto value = static_cast<unsigned>(point.value);
    if (value == '\\' || value == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(value);
    } else if (value == '\n') {
      out += "\\n";
    } else if (value == '\r') {
      out += "\\r";
    } else if (value == '\t') {
      out += "\\t";
    } else if (is_printable(point.value)) {
      out += text.substr(at, point.size);
    } else if (value <= 0xFF) {
      out += fmt::format("\\x{:02x}", value);
    } else if (value <= 0xFFFF) {
      out += fmt::format("\\u{:04x}", value);
    } else {
      out += fmt::format("\\U{:08x}", value);
    }
    at += point.size;
  }
  return out + quote;
}

std::string json_string(std::string_view text, bool ensure_ascii) {
  return base::Json(text).dump(-1, ' ', ensure_ascii);
}

void write_json(const Value& value, const JsonStyle& style, int depth, std::string& out);

void write_separator(const JsonStyle& style, bool first, int depth, std::string& out) {
  if (!first) {
    out += style.indent < 0 ? ", " : ",";
  }
  if (style.indent >= 0) {
    out += '\n';
    out.append(static_cast<std::size_t>(style.indent) * static_cast<std::size_t>(depth), ' ');
  }
}

void write_json_list(const List& list, const JsonStyle& style, int depth, std::string& out) {
  if (list.items.empty()) {
    out += "[]";
    return;
  }
  out += '[';
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    write_separator(style, i == 0, depth + 1, out);
    write_json(list.items[i], style, depth + 1, out);
  }
  if (style.indent >= 0) {
    write_separator(style, true, depth, out);
  }
  out += ']';
}

void write_json_dict(const Dict& dict, const JsonStyle& style, int depth, std::string& out) {
  if (dict.items.empty()) {
    out += "{}";
    return;
  }
  auto items = dict.items;
  if (style.sort_keys) {
    std::sort(items.begin(), items.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  out += '{';
  for (std::size_t i = 0; i < items.size(); ++i) {
    write_separator(style, i == 0, depth + 1, out);
    out += json_string(items[i].first, style.ensure_ascii) + ": ";
    write_json(items[i].second, style, depth + 1, out);
  }
  if (style.indent >= 0) {
    write_separator(style, true, depth, out);
  }
  out += '}';
}

void write_json(const Value& value, const JsonStyle& style, int depth, std::string& out) {
  if (value.is_none()) {
    out += "null";
  } else if (const bool* const boolean = value.as<bool>()) {
    out += *boolean ? "true" : "false";
  } else if (const auto* const integer = value.as<std::int64_t>()) {
    out += std::to_string(*integer);
  } else if (const double* const number = value.as<double>()) {
    out += float_repr(*number);
  } else if (const std::string* const text = value.as_text()) {
    out += json_string(*text, style.ensure_ascii);
  } else if (const List* const list = value.as_list()) {
    write_json_list(*list, style, depth, out);
  } else if (const Dict* const dict = value.as_dict(); dict != nullptr && !dict->is_namespace) {
    write_json_dict(*dict, style, depth, out);
  } else {
    throw Fault{"tojson of a value of type " + value.type_name()};
  }
}

/// The nesting of a container that holds `value`; Fault when values get nested too deep.
int depth_around(const Value& value) {
  int depth = 1;
  if (const List* const list = value.as_list()) {
    depth += list->depth;
  } else if (const Dict* const dict = value.as_dict()) {
    depth += dict->depth;
  }
  if (depth > kMaxValueDepth) {
    throw Fault{"values nested too deep"};
  }
  return depth;
}

int compare_lists(const List& left, const List& right) {
  const std::size_t common = std::min(left.items.size(), right.items.size());
  for (std::size_t i = 0; i < common; ++i) {
    if (!equal(left.items[i], right.items[i])) {
      return compare(left.items[i], right.items[i]);
    }
  }
  return left.items.size() < right.items.size() ? -1
                                                : (left.items.size() > right.items.size() ? 1 : 0);
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto at = std::find_if(items.begin(), items.end(),
                               [key](const auto& item) { return item.first == key; });
  return at == items.end() ? nullptr : &at->second;
}

void Dict::set(const std::string& key, Value value) {
  depth = std::max(depth, depth_around(value));
  const auto at = std::find_if(items.begin(), items.end(),
                               [&key](const auto& item) { return item.first == key; });
  if (at == items.end()) {
    items.emplace_back(key, std::move(value));
  } else {
    at->second = std::move(value);
  }
}

const Value* Arguments::get(std::size_t index, std::string_view name) const {
  if (index < positional.size()) {
    return &positional[index];
  }
  for (const auto& [key, value] : named) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  int depth = 1;
  for (const Value& item : items) {
    depth = std::max(depth, depth_around(item));
  }
  return Data(std::make_shared<List>(List{std::move(items), is_tuple, depth}));
}

Value Value::callable(std::string name, std::function<Value(const Arguments&)> call) {
  return Data(std::make_shared<Callable>(Callable{std::move(name), std::move(call)}));
}

Value Value::from_json(const base::OrderedJson& json) {
  if (json.is_null()) {
    return {};
  }
  if (json.is_boolean()) {
    return boolean(json.get<bool>());
  }
  if (json.is_number_integer()) {
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
      throw Fault{"an integer above 2^63"};
    }
    return integer(json.get<std::int64_t>());
  }
  if (json.is_number_float()) {
    return Data(json.get<double>());
  }
  if (json.is_string()) {
    return text(json.get<std::string>());
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) {
      items.push_back(from_json(item));
    }
    return list(std::move(items));
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& item : json.items()) {
    Value value = from_json(item.value());
    dict->depth = std::max(dict->depth, depth_around(value));
    dict->items.emplace_back(item.key(), std::move(value));
  }
  return Data(std::move(dict));
}

const List* Value::as_list() const {
  const auto* const list = as<std::shared_ptr<List>>();
  return list == nullptr ? nullptr : list->get();
}

const Dict* Value::as_dict() const {
  const auto* const dict = as<std::shared_ptr<Dict>>();
  return dict == nullptr ? nullptr : dict->get();
}

Dict* Value::as_namespace() const {
  const auto* const dict = as<std::shared_ptr<Dict>>();
  return dict != nullptr && (*dict)->is_namespace ? dict->get() : nullptr;
}

std::optional<double> Value::as_number() const {
  if (const double* const number = as<double>()) {
    return *number;
  }
  if (const auto whole = as_integer()) {
    return static_cast<double>(*whole);
  }
  return std::nullopt;
}

std::optional<std::int64_t> Value::as_integer() const {
  if (const auto* const integer = as<std::int64_t>()) {
    return *integer;
  }
  if (const bool* const boolean = as<bool>()) {
    return *boolean ? 1 : 0;
  }
  return std::nullopt;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) {
    return false;
  }
  if (const auto number = as_number()) {
    return *number != 0;
  }
  if (const std::string* const text = as_text()) {
    return !text->empty();
  }
  if (const List* const list = as_list()) {
    return !list->items.empty();
  }
  if (const Dict* const dict = as_dict()) {
    return dict->is_namespace || !dict->items.empty();
  }
  return true;
}

std::string Value::type_name() const {
  if (const List* const list = as_list()) {
    return list->is_tuple ? "tuple" : "list";
  }
  if (const Dict* const dict = as_dict()) {
    return dict->is_namespace ? "namespace" : "dict";
  }
  constexpr std::array<const char*, 9> kNames = {"undefined", "None", "bool", "int",     "float",
                                                 "str",       "list", "dict", "callable"};
  return kNames.at(data_.index());
}

std::string Value::str() const {
  if (is_undefined()) {
    return {};
  }
  const std::string* const text = as_text();
  return text != nullptr ? *text : repr();
}

std::string Value::repr() const {
  if (is_undefined()) {
    return "Undefined";
  }
  if (is_none()) {
    return "None";
  }
  if (const bool* const boolean = as<bool>()) {
    return *boolean ? "True" : "False";
  }
  if (const auto* const integer = as<std::int64_t>()) {
    return std::to_string(*integer);
  }
  if (const double* const number = as<double>()) {
    return float_repr(*number);
  }
  if (const std::string* const text = as_text()) {
    return text_repr(*text);
  }
  std::string out;
  if (const List* const list = as_list()) {
    for (const Value& item : list->items) {
      out += (out.empty() ? "" : ", ") + item.repr();
    }
    if (!list->is_tuple) {
      return "[" + out + "]";
    }
    return "(" + out + (list->items.size() == 1 ? ",)" : ")");
  }
  if (const Dict* const dict = as_dict(); dict != nullptr && !dict->is_namespace) {
    for (const auto& [key, value] : dict->items) {
      out += (out.empty() ? "" : ", ") + text_repr(key) + ": " + value.repr();
    }
    return "{" + out + "}";
  }
  throw Fault{"printing a value of type " + type_name()};
}

std::vector<Value> Value::elements() const {
  std::vector<Value> items;
  if (const List* const list = as_list()) {
    return list->items;
  }
  if (const std::string* const text = as_text()) {
    for (std::string& character : characters(*text)) {
      items.push_back(Value::text(std::move(character)));
    }
    return items;
  }
  if (const Dict* const dict = as_dict(); dict != nullptr && !dict->is_namespace) {
    for (const auto& [key, value] : dict->items) {
      items.push_back(Value::text(key));
    }
    return items;
  }
  if (is_undefined()) {
    return items;
  }
  throw Fault{"'" + type_name() + "' object is not iterable"};
}

std::int64_t Value::length() const {
  if (const List* const list = as_list()) {
    return static_cast<std::int64_t>(list->items.size());
  }
  if (as_number() || is_none()) {
    throw Fault{"object of type '" + type_name() + "' has no length"};
  }
  return static_cast<std::int64_t>(elements().size());
}

bool equal(const Value& left, const Value& right) {
  if (const auto a = left.as_number()) {
    const auto b = right.as_number();
    const auto whole_a = left.as_integer();
    const auto whole_b = right.as_integer();
    return b && (whole_a && whole_b ? *whole_a == *whole_b : *a == *b);
  }
  if (left.is_none() || left.is_undefined()) {
    return left.is_none() ? right.is_none() : right.is_undefined();
  }
  if (const std::string* const text = left.as_text()) {
    const std::string* const other = right.as_text();
    return other != nullptr && *text == *other;
  }
  if (const List* const list = left.as_list()) {
    const List* const other = right.as_list();
    return other != nullptr && list->is_tuple == other->is_tuple &&
           std::equal(list->items.begin(), list->items.end(), other->items.begin(),
                      other->items.end(), equal);
  }
  const Dict* const a = left.as_dict();
  const Dict* const b = right.as_dict();
  if (a == nullptr || b == nullptr || a->is_namespace || b->is_namespace) {
    return a != nullptr && a == b;
  }
  return a->items.size() == b->items.size() &&
         std::all_of(a->items.begin(), a->items.end(), [b](const auto& item) {
           const Value* const other = b->find(item.first);
           return other != nullptr && equal(item.second, *other);
         });
}

int compare(const Value& left, const Value& right) {
  const auto a = left.as_number();
  const auto b = right.as_number();
  if (a && b) {
    const auto whole_a = left.as_integer();
    const auto whole_b = right.as_integer();
    if (whole_a && whole_b) {
      return *whole_a < *whole_b ? -1 : (*whole_a > *whole_b ? 1 : 0);
    }
    return *a < *b ? -1 : (*a > *b ? 1 : 0);
  }
  if (left.as_text() != nullptr && right.as_text() != nullptr) {
    // Byte order of UTF-8 is code point order.
    return left.as_text()->compare(*right.as_text());
  }
  const List* const list = left.as_list();
  const List* const other = right.as_list();
  if (list != nullptr && other != nullptr && list->is_tuple == other->is_tuple) {
    return compare_lists(*list, *other);
  }
  throw Fault{"'" + left.type_name() + "' and '" + right.type_name() + "' do not compare"};
}

bool contains(const Value& haystack, const Value& needle) {
  if (const std::string* const text = haystack.as_text()) {
    const std::string* const part = needle.as_text();
    if (part == nullptr) {
      throw Fault{"'in <string>' requires a string, not " + needle.type_name()};
    }
    return text->find(*part) != std::string::npos;
  }
  if (const Dict* const dict = haystack.as_dict(); dict != nullptr && !dict->is_namespace) {
    const std::string* const key = needle.as_text();
    return key != nullptr && dict->find(*key) != nullptr;
  }
  const std::vector<Value> items = haystack.elements();
  return std::any_of(items.begin(), items.end(),
                     [&needle](const Value& item) { return equal(item, needle); });
}

std::string to_json_text(const Value& value, const JsonStyle& style) {
  std::string out;
  write_json(value, style, 0, out);
  return out;
}

std::string float_repr(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

bool is_python_space(char32_t value) {
  return is_white_space(value) || (value >= 0x1C && value <= 0x1F);
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point_at(text, at).size;
    result.emplace_back(text.substr(at, size));
    at += size;
  }
  return result;
}

}  // namespace longhaul::text::jinja
