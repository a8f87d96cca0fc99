// Where data is looked up and cached, from the environment of the command.
#pragma once

#include "config/config.h"
#include "data/dataset.h"

namespace longhaul::cli {

/// $LONGHAUL_DATA for named data sets; --cache_dir, else $XDG_CACHE_HOME/longhaul, else
/// ~/.cache/longhaul.
data::DataEnvironment data_environment(const config::Config& config);

}  // namespace longhaul::cli
