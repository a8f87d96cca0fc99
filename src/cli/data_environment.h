// Where data is looked up and cached, from the environment of the command.
#pragma once

#include <filesystem>

#include "config/config.h"
#include "data/dataset.h"

namespace longhaul::cli {

/// The token cache without --cache_dir: $XDG_CACHE_HOME/longhaul, else ~/.cache/longhaul. UserError
/// when neither variable is usable and the folder that is left belongs to somebody else.
std::filesystem::path default_cache();

/// $LONGHAUL_DATA for named data sets; --cache_dir, else $XDG_CACHE_HOME/longhaul, else
/// ~/.cache/longhaul.
data::DataEnvironment data_environment(const config::Config& config);

}  // namespace longhaul::cli
