// Ranks as threads of one process: sequence parallelism tested without MPI and without a second
// process. Blocks are copied directly out of the peer's memory while all ranks stand in the same
// call.
#pragma once

#include <chrono>
#include <functional>

#include "dist/communicator.h"

namespace longhaul::dist {

/// Runs `rank_main` on `ranks` threads, one communicator each, and returns when all have returned.
///
/// Units   `deadline` is how long one collective may wait for its peers
/// Order   ranks that call different operations are told so; they do not hang
/// Errors  a rank that throws, or returns while others wait for it, ends them all; the first rank's
/// own exception
///         is rethrown here. PeerError when a rank came too late for a collective.
void run_ranks(int ranks, const std::function<void(Communicator&)>& rank_main,
               std::chrono::milliseconds deadline = std::chrono::minutes(2));

}  // namespace longhaul::dist
