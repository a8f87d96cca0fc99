// The program's version, from the build.
#pragma once

#include <string_view>

namespace longhaul::config {

/// Such as `0.1.0`; printed by --version and written into args.json.
std::string_view program_version();

}  // namespace longhaul::config
