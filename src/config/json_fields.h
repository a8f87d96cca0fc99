// Typed access to the fields of a JSON object from a file. Faults are collected with file:line
// instead of thrown, so that one run lists all of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace longhaul::config {

/// Line of every key of a valid JSON text by path (`rope_scaling.factor`), the outermost two levels
/// only. A repeated key keeps its last line, as the parser keeps its last value.
std::map<std::string, std::size_t> key_lines(std::string_view text);

/// A JSON value as it stands in the file, cut to a length that fits into a message.
std::string short_dump(const base::Json& value);

/// Fields of one object. Absent and null are the same to every getter; `has` tells whether there is
/// a value.
class JsonFields {
 public:
  /// `where` is the file; `lines` comes from key_lines; `prefix` is the path of this object
  /// (`rope_scaling.`).
  JsonFields(const base::Json& object, std::string where,
             const std::map<std::string, std::size_t>& lines, std::vector<base::Problem>& problems,
             std::string prefix = {});

  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] bool is_present(const std::string& key) const { return object_.contains(key); }
  [[nodiscard]] const base::Json& object() const { return object_; }
  /// The value; null when absent.
  [[nodiscard]] const base::Json& at(const std::string& key) const;
  [[nodiscard]] const std::string& file() const { return where_; }

  /// An integer in [least, most]; a fault otherwise.
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key, std::int64_t least,
                                                    std::int64_t most) const;
  /// As `integer`, and absence is a fault.
  [[nodiscard]] std::int64_t required_integer(const std::string& key, std::int64_t least,
                                              std::int64_t most) const;
  /// A finite number in [least, most].
  [[nodiscard]] std::optional<double> number(const std::string& key, double least,
                                             double most) const;
  [[nodiscard]] std::optional<bool> boolean(const std::string& key) const;
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const;
  /// The object under `key`, for fields one level down.
  [[nodiscard]] JsonFields child(const std::string& key) const;

  /// Notes a fault of `key`; its value is quoted when there is one.
  void fault(const std::string& key, std::string what, std::string expected = {},
             std::string hint = {}) const;
  /// `file:line: key` when the line is known, else `file: key`.
  [[nodiscard]] std::string place(const std::string& key) const;

 private:
  const base::Json& object_;
  std::string where_;
  const std::map<std::string, std::size_t>& lines_;
  std::vector<base::Problem>& problems_;
  std::string prefix_;
};

}  // namespace longhaul::config
