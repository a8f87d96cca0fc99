// Values of the Jinja evaluator with Python's meaning: what they print as, when they are true, how
// they compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace longhaul::text::jinja {

class Value;

/// A name or attribute that does not exist: prints as nothing, is false, has no attributes.
struct Undefined {
  std::string name;
};
struct None {};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // nesting below, so that recursion over values stays bounded
};

/// A mapping with text keys, in insertion order.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool is_namespace = false;  // attributes can be set
  int depth = 1;

  [[nodiscard]] const Value* find(std::string_view key) const;
  void set(const std::string& key, Value value);
};

/// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Positional argument `index` or the one named `name`; nullptr when neither is given.
  [[nodiscard]] const Value* get(std::size_t index, std::string_view name) const;
};

struct Callable {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

/// What went wrong in a template; the evaluator adds file and line.
class Fault : public std::exception {
 public:
  explicit Fault(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, std::int64_t, double, std::string, std::shared_ptr<List>,
                   std::shared_ptr<Dict>, std::shared_ptr<Callable>>;

  Value() : data_(None{}) {}
  Value(Data data) : data_(std::move(data)) {}  // NOLINT(google-explicit-constructor)
  static Value undefined(std::string name) { return Data(Undefined{std::move(name)}); }
  static Value boolean(bool value) { return Data(value); }
  static Value integer(std::int64_t value) { return Data(value); }
  static Value text(std::string value) { return Data(std::move(value)); }
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value callable(std::string name, std::function<Value(const Arguments&)> call);
  static Value from_json(const base::OrderedJson& json);

  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  [[nodiscard]] const std::string* as_text() const { return as<std::string>(); }
  [[nodiscard]] const List* as_list() const;
  [[nodiscard]] const Dict* as_dict() const;
  [[nodiscard]] Dict* as_namespace() const;
  [[nodiscard]] bool is_undefined() const { return as<Undefined>() != nullptr; }
  [[nodiscard]] bool is_none() const { return as<None>() != nullptr; }
  /// bool, int or float as a number (True is 1).
  [[nodiscard]] std::optional<double> as_number() const;
  /// bool or int as an int.
  [[nodiscard]] std::optional<std::int64_t> as_integer() const;

  [[nodiscard]] bool truthy() const;
  /// Python's name of the type ("str"), for messages.
  [[nodiscard]] std::string type_name() const;
  /// str(value)
  [[nodiscard]] std::string str() const;
  /// repr(value), as lists and dicts print their elements
  [[nodiscard]] std::string repr() const;
  /// Elements in order (characters of a text, keys of a mapping); Fault when the value has none.
  [[nodiscard]] std::vector<Value> elements() const;
  /// len(value); Fault when it has none.
  [[nodiscard]] std::int64_t length() const;

 private:
  Data data_;
};

/// Python's ==
bool equal(const Value& left, const Value& right);
/// Python's ordering: negative, 0, positive; Fault for types that do not compare.
int compare(const Value& left, const Value& right);
/// Python's `needle in haystack`.
bool contains(const Value& haystack, const Value& needle);

/// json.dumps as chat templates get it; indent < 0: on one line.
struct JsonStyle {
  int indent = -1;
  bool ensure_ascii = false;
  bool sort_keys = false;
};
std::string to_json_text(const Value& value, const JsonStyle& style);

/// Python's float repr (`1.0`, `1e+16`).
std::string float_repr(double value);
/// What str.isspace() says.
bool is_python_space(char32_t value);
/// The code points of a text, each as its own string.
std::vector<std::string> characters(std::string_view text);

}  // namespace longhaul::text::jinja
