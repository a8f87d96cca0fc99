// Whether processes of this machine may read one another's memory directly.
#pragma once

namespace longhaul::dist {

/// True when the kernel lets two of our processes copy memory between them; containers and hardened systems often do not.
/// Tried with two short-lived processes, so that the answer is about this very place. Never throws.
bool can_copy_between_processes();

}  // namespace longhaul::dist
