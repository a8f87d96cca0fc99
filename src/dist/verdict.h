// From what a launcher saw of its ranks to one exit status and the lines to print: the first rank
// at fault, and only it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/launch_folder.h"

namespace longhaul::dist {

/// The end of one rank as far as it is known.
struct RankEnd {
  std::int64_t rank = 0;
  std::string place;                    // `rank 1, step 7, exchange q,k,v`
  Outcome outcome = Outcome::kRunning;  // what the rank recorded
  int exit_code = 0;
  std::int64_t outcome_ns = 0;
  std::vector<std::string> lines;
  /// When it was seen dead without having recorded anything, before the launcher began to end
  /// ranks.
  std::optional<std::int64_t> died_ns;
  /// False when its process was never seen: it told nobody where it is.
  bool has_come_up = true;
  /// Why it counts as stuck (no heartbeat, never started); empty when it does not.
  std::string stuck;
};

/// How what started the ranks (mpirun, or a process of our own) ended and what it said.
struct StarterEnd {
  std::string name = "mpirun";
  int status = 0;  // exit status; 128 + signal when a signal ended it
  std::vector<std::string>
      output;  // its own lines, shown only when nothing else explains a failure
};

/// What the launcher returns and prints (each line after `longhaul: error: `).
struct Verdict {
  int exit_code = 0;
  std::vector<std::string> error_lines;
};

/// Order of belief: mpirun about a rank that never came up; a rank's own error or death, whichever came first; a stuck rank; a complaint
/// about a peer; mpirun.
Verdict judge(const std::vector<RankEnd>& ranks, const StarterEnd& starter);

}  // namespace longhaul::dist
