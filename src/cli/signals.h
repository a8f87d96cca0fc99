// What signals about files and pipes mean to the program; those that ask it to stop are in
// interrupt.h and dist/stop_request.h.
#pragma once

namespace longhaul::cli {

/// At start: a file that grows past the limit of the system (`ulimit -f`) is a failed write like a
/// full disk, and a reader that has gone (`| head`) ends the program quietly.
void set_start_signals();

/// From now on a reader that has gone ends nothing: for commands whose results are files.
void outlive_readers();

}  // namespace longhaul::cli
