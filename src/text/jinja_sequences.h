// Python's operations on texts and lists that filters, methods and subscripts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace longhaul::text::jinja {

/// str.strip / lstrip / rstrip: which ends.
enum class Ends { kBoth, kLeft, kRight };
/// Takes off white space, or the characters of `set` where one is given.
std::string strip(std::string_view text, Ends ends, const std::optional<std::string>& set = {});

/// Case mappings; Fault for letters beyond ASCII, whose mapping depends on the Unicode version.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);

/// str.replace; `count` < 0: every occurrence.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t count = -1);

/// One element by index or slice rules: nothing when out of range.
std::optional<Value> element_at(const Value& sequence, std::int64_t index);
/// Python's slice of a text or list; absent parts as in Python.
Value slice(const Value& sequence, std::optional<std::int64_t> start,
            std::optional<std::int64_t> stop, std::optional<std::int64_t> step);

}  // namespace longhaul::text::jinja
