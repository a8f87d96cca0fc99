#include "config/version.h"

namespace longhaul::config {

std::string_view program_version() { return LONGHAUL_VERSION; }

}  // namespace longhaul::config
