// Which keys of a config.json are refused, ignored or noted.
#pragma once

#include <string>
#include <vector>

#include "config/json_fields.h"

namespace longhaul::config {

/// Adds a fault for every key that changes the mathematics in a way that is not built (experts,
/// soft caps, quantised weights …), whatever the family.
void refuse_unbuilt_features(const JsonFields& fields);

/// Keys that are neither read, refused nor known to be harmless, as `file:line: key`; for a
/// start-up note.
std::vector<std::string> unknown_keys(const JsonFields& fields);

}  // namespace longhaul::config
