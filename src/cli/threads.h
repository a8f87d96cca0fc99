// Variables that libgomp reads before main: the number of threads, and how they wait.
#pragma once

#include "dist/rendezvous.h"

namespace longhaul::cli {

/// Puts an unusable OMP_NUM_THREADS back into the environment. It was taken out before libgomp could
/// complain about it in its own words; dist::check_thread_count refuses it in ours.
void restore_thread_count();

/// True when the process should start again with dist::kSpinCount, because it will compute with
/// several threads and nobody has said how they wait.
bool lacks_wait_policy(const dist::Environment& environment);

}  // namespace longhaul::cli
