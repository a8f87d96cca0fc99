// The process between a launcher and its ranks: mpirun, or one of our own.
#pragma once

namespace longhaul::dist {

/// In the child of a fork that becomes it: a session of its own (signals of the terminal reach only
/// the launcher), no input, output to `output_fd`, and no stop signals, since whoever signals every
/// process of the program means the launcher. System calls only.
void leave_launchers_session(int output_fd);

}  // namespace longhaul::dist
