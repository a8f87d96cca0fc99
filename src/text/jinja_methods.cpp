#include "text/jinja_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "text/jinja_sequences.h"
#include "text/unicode.h"

namespace longhaul::text::jinja {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);

/// Text argument `index`; Fault when it is missing or no text.
const std::string& text_argument(const Arguments& arguments, std::size_t index) {
  const Value* const value = arguments.get(index, "");
  if (value == nullptr || value->as_text() == nullptr) {
    throw Fault{"a text argument is missing or of another type"};
  }
  return *value->as_text();
}

/// The optional text argument 0; None counts as absent.
std::optional<std::string> optional_text(const Arguments& arguments) {
  if (arguments.positional.empty() || arguments.positional[0].is_none()) {
    return std::nullopt;
  }
  return text_argument(arguments, 0);
}

std::int64_t integer_argument(const Arguments& arguments, std::size_t index, std::string_view name,
                              std::int64_t absent) {
  const Value* const value = arguments.get(index, name);
  if (value == nullptr) {
    return absent;
  }
  const auto integer = value->as_integer();
  if (!integer) {
    throw Fault{"a whole number argument is of another type"};
  }
  return *integer;
}

void limit_arguments(const Arguments& arguments, std::size_t most) {
  if (arguments.positional.size() > most || !arguments.named.empty()) {
    throw Fault{"arguments that are not supported"};
  }
}

template <Ends ends>
Value strip_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  return Value::text(strip(*self.as_text(), ends, optional_text(arguments)));
}

/// Pieces between white-space runs, at most `count` cuts from the left (< 0: all).
std::vector<Value> split_on_space(std::string_view text, std::int64_t count) {
  std::vector<Value> parts;
  std::string_view rest = text;
  while (true) {
    rest = rest.substr(rest.size() - strip(rest, Ends::kLeft).size());
    if (rest.empty()) {
      return parts;
    }
    if (count == 0) {
      parts.push_back(Value::text(std::string(rest)));
      return parts;
    }
    std::size_t at = 0;
    while (at < rest.size()) {
      const CodePoint point = code_point_at(rest, at);
      if (is_python_space(point.value)) {
        break;
      }
      at += point.size;
    }
    parts.push_back(Value::text(std::string(rest.substr(0, at))));
    rest.remove_prefix(at);
    --count;
  }
}

Value split_method(const Value& self, const Arguments& arguments) {
  std::string_view rest = *self.as_text();
  std::int64_t count = integer_argument(arguments, 1, "maxsplit", -1);
  const auto separator = optional_text(arguments);
  if (!separator) {
    return Value::list(split_on_space(rest, count));
  }
  if (separator->empty()) {
    throw Fault{"split with an empty separator"};
  }
  std::vector<Value> parts;
  for (; count != 0; --count) {
    const std::size_t at = rest.find(*separator);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(Value::text(std::string(rest.substr(0, at))));
    rest.remove_prefix(at + separator->size());
  }
  parts.push_back(Value::text(std::string(rest)));
  return Value::list(std::move(parts));
}

Value rsplit_method(const Value& self, const Arguments& arguments) {
  std::string_view rest = *self.as_text();
  std::int64_t count = integer_argument(arguments, 1, "maxsplit", -1);
  const auto separator = optional_text(arguments);
  if (!separator || separator->empty()) {
    throw Fault{"rsplit without a separator is not supported"};
  }
  std::vector<Value> parts;
  for (; count != 0; --count) {
    const std::size_t at = rest.rfind(*separator);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(Value::text(std::string(rest.substr(at + separator->size()))));
    rest = rest.substr(0, at);
  }
  parts.push_back(Value::text(std::string(rest)));
  std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

/// startswith / endswith with one text or a tuple of them.
template <bool at_start>
Value affix_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  const std::string_view text = *self.as_text();
  const auto fits = [text](const Value& affix) {
    const std::string* const part = affix.as_text();
    if (part == nullptr) {
      throw Fault{"startswith and endswith need texts"};
    }
    return at_start ? text.starts_with(*part) : text.ends_with(*part);
  };
  if (arguments.positional.empty()) {
    throw Fault{"startswith and endswith need an argument"};
  }
  const Value& affix = arguments.positional[0];
  if (const List* const list = affix.as_list(); list != nullptr && list->is_tuple) {
    return Value::boolean(std::any_of(list->items.begin(), list->items.end(), fits));
  }
  return Value::boolean(fits(affix));
}

Value replace_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 3);
  return Value::text(replace_all(*self.as_text(), text_argument(arguments, 0),
                                 text_argument(arguments, 1),
                                 integer_argument(arguments, 2, "count", -1)));
}

template <std::string (*mapping)(std::string_view)>
Value case_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  return Value::text(mapping(*self.as_text()));
}

/// find / rfind: an index in characters.
template <bool from_left>
Value find_in_text(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  const std::string& text = *self.as_text();
  const std::string& part = text_argument(arguments, 0);
  const std::size_t at = from_left ? text.find(part) : text.rfind(part);
  if (at == std::string::npos) {
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(characters(text.substr(0, at)).size()));
}

Value count_in_text(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  const std::string& part = text_argument(arguments, 0);
  if (part.empty()) {
    return Value::integer(self.length() + 1);
  }
  std::int64_t count = 0;
  for (std::size_t at = self.as_text()->find(part); at != std::string::npos;
       at = self.as_text()->find(part, at + part.size())) {
    ++count;
  }
  return Value::integer(count);
}

Value join_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  if (arguments.positional.empty()) {
    throw Fault{"join needs an argument"};
  }
  std::string out;
  bool first = true;
  for (const Value& item : arguments.positional[0].elements()) {
    if (item.as_text() == nullptr) {
      throw Fault{"join of a value that is no text"};
    }
    out += first ? *item.as_text() : *self.as_text() + *item.as_text();
    first = false;
  }
  return Value::text(std::move(out));
}

Value is_digit_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  const std::string& text = *self.as_text();
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      throw Fault{"isdigit of text beyond ASCII is not supported"};
    }
  }
  return Value::boolean(!text.empty() && std::all_of(text.begin(), text.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; }));
}

Value is_space_method(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  return Value::boolean(!self.as_text()->empty() && strip(*self.as_text(), Ends::kLeft).empty());
}

template <bool prefix>
Value remove_affix(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  std::string_view text = *self.as_text();
  const std::string& part = text_argument(arguments, 0);
  if (prefix && text.starts_with(part)) {
    text.remove_prefix(part.size());
  } else if (!prefix && text.ends_with(part)) {
    text.remove_suffix(part.size());
  }
  return Value::text(std::string(text));
}

Value dict_items(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict()->items) {
    items.push_back(Value::list({Value::text(key), value}, true));
  }
  return Value::list(std::move(items));
}

Value dict_keys(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  return Value::list(self.elements());
}

Value dict_values(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 0);
  std::vector<Value> values;
  for (const auto& [key, value] : self.as_dict()->items) {
    values.push_back(value);
  }
  return Value::list(std::move(values));
}

Value dict_get(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 2);
  if (arguments.positional.empty()) {
    throw Fault{"get needs a key"};
  }
  const std::string* const key = arguments.positional[0].as_text();
  const Value* const value = key == nullptr ? nullptr : self.as_dict()->find(*key);
  if (value != nullptr) {
    return *value;
  }
  return arguments.positional.size() > 1 ? arguments.positional[1] : Value();
}

Value list_count(const Value& self, const Arguments& arguments) {
  limit_arguments(arguments, 1);
  if (arguments.positional.empty()) {
    throw Fault{"count needs an argument"};
  }
  const auto& items = self.as_list()->items;
  return Value::integer(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equal(item, arguments.positional[0]);
  }));
}

struct MethodRow {
  std::string_view name;
  Method method;  // null: exists in Python, not here
};

constexpr std::array kTextMethods = std::to_array<MethodRow>({
    {"strip", strip_method<Ends::kBoth>},
    {"lstrip", strip_method<Ends::kLeft>},
    {"rstrip", strip_method<Ends::kRight>},
    {"split", split_method},
    {"rsplit", rsplit_method},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"replace", replace_method},
    {"upper", case_method<to_upper>},
    {"lower", case_method<to_lower>},
    {"capitalize", case_method<capitalize>},
    {"find", find_in_text<true>},
    {"rfind", find_in_text<false>},
    {"count", count_in_text},
    {"join", join_method},
    {"isdigit", is_digit_method},
    {"isspace", is_space_method},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", nullptr},
    {"isalnum", nullptr},
    {"isalpha", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"splitlines", nullptr},
    {"swapcase", nullptr},
    {"title", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
});

constexpr std::array kDictMethods = std::to_array<MethodRow>({
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"get", dict_get},
    {"clear", nullptr},
    {"copy", nullptr},
    {"fromkeys", nullptr},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
});

constexpr std::array kListMethods = std::to_array<MethodRow>({
    {"count", list_count},
    {"append", nullptr},
    {"clear", nullptr},
    {"copy", nullptr},
    {"extend", nullptr},
    {"index", nullptr},
    {"insert", nullptr},
    {"pop", nullptr},
    {"remove", nullptr},
    {"reverse", nullptr},
    {"sort", nullptr},
});

template <std::size_t count>
std::optional<Value> method_in(const std::array<MethodRow, count>& rows, const Value& object,
                               std::string_view name) {
  const auto* const at = std::find_if(rows.begin(), rows.end(),
                                      [name](const MethodRow& row) { return row.name == name; });
  if (at == rows.end()) {
    return std::nullopt;
  }
  if (at->method == nullptr) {
    throw Fault{fmt::format("method {}.{} is not supported", object.type_name(), name)};
  }
  return Value::callable(std::string(name),
                         [object, method = at->method](const Arguments& arguments) {
                           return method(object, arguments);
                         });
}

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (object.as_text() != nullptr) {
    return method_in(kTextMethods, object, name);
  }
  if (object.as_list() != nullptr) {
    return method_in(kListMethods, object, name);
  }
  if (const Dict* const dict = object.as_dict(); dict != nullptr && !dict->is_namespace) {
    return method_in(kDictMethods, object, name);
  }
  return std::nullopt;
}

}  // namespace longhaul::text::jinja
