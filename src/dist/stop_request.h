// Ctrl-C, SIGTERM and SIGHUP (the terminal was closed) as a wish that the trainer reads between
// steps. Before the first step has ended, and on a second signal, the process ends at once; SIGHUP
// never counts as a second one, because shell and terminal each send it. Ranks under our launcher get the wish
// through its page; they must still agree on the step at which they stop (the trainer reduces the
// flag with the step's other sums).
#pragma once

#include <array>
#include <csignal>

#include "dist/launch_folder.h"

namespace longhaul::dist {

/// The signals that ask for the end of a job.
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP};

/// True when SIGHUP is ignored, as nohup arranges: then it stays so.
bool ignores_hangup();

/// What has been asked so far.
struct StopRequest {
  int count = 0;   // signals received; 0 = go on
  int signal = 0;  // the first one
  /// 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
  [[nodiscard]] int exit_code() const { return 128 + signal; }
};

/// Handles kStopSignals from now on (SIGHUP unless it is ignored). Under a launcher (`launcher` and `mine` given) a signal
/// never ends the process: the launcher does that.
void install_stop_handlers(const LauncherPage* launcher, RankPage* mine);

/// These signals do nothing from now on: the rank is ending and its page goes away.
void ignore_stop_signals();

/// The state now; cheap enough for every micro-batch.
StopRequest stop_requested();

/// A step has ended: from now on the first signal asks for the end of the step instead of ending
/// the process.
void first_step_has_ended();

}  // namespace longhaul::dist
