// Methods of texts, lists and mappings that chat templates call (`content.split('</think>')`).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja_value.h"

namespace longhaul::text::jinja {

/// The bound method `object.name`; nothing when Python's type has no such attribute. Fault for one
/// that exists in Python but is not supported here, so that it is never mistaken for a missing key.
std::optional<Value> find_method(const Value& object, std::string_view name);

}  // namespace longhaul::text::jinja
