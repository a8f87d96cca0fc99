// Jinja's filters (`| trim`) and tests (`is defined`) that chat templates use.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja_value.h"

namespace longhaul::text::jinja {

/// `value | name(arguments)`; Fault for an unknown filter or arguments it does not take.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments);

/// `value is name(arguments)`; Fault for an unknown test.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);

/// `value.name` as Jinja looks it up: an attribute or method first, then the key. Undefined when
/// there is neither.
Value attribute_of(const Value& value, std::string_view name);

/// `value[key]`: the item first, then (for text keys) the attribute.
Value item_of(const Value& value, const Value& key);

}  // namespace longhaul::text::jinja
