// Ranks that train together must mean the same run. Each process reads its own command line and files (on several hosts
// they are typed and copied apart), so what they read is compared before it matters.
#pragma once

#include <string_view>

#include "base/json.h"
#include "config/config.h"
#include "dist/communicator.h"

namespace longhaul::train {

/// Compares the options with those of rank 0. Paths may differ in all but being given, what only concerns a host
/// (caches, worker counts, memory limits) altogether.
///
/// Order   collective over the world, before it is cut into groups
/// Errors  UserError, the same on every rank: the first option that differs, with two ranks' values
void check_options_agree(const config::Config& config, dist::Communicator& world);

/// Compares name → value of what was read from files with rank 0's. Collective; errors as above.
void check_contents_agree(const base::OrderedJson& contents, dist::Communicator& world);

}  // namespace longhaul::train
