// The launcher of `NPROC_PER_NODE=N longhaul …`: starts the ranks (CPU ranks through mpirun), passes their
// output on, forwards a wish to stop once, notices a dead or stuck rank, brings the others down,
// and says in one line which rank it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/rank_watch.h"
#include "dist/rendezvous.h"
#include "dist/verdict.h"

namespace longhaul::dist {

struct SupervisorOptions {
  std::filesystem::path mpirun;      // empty: the ranks are started directly, as GPU ranks are
  std::vector<std::string> command;  // program (a full path) and its arguments
  std::int64_t ranks = 1;            // on this machine
  std::int64_t nodes =
      1;  // more than one only without mpirun; this launcher is then one of several
  std::int64_t node_rank = 0;
  MeetingPlace place{};  // of ranks that are started directly
  int output_fd = 1;     // where the ranks' standard output goes
  int error_fd = 2;
  WatchLimits limits;
};

/// Runs the ranks to their end. An output that nobody reads holds up the ranks, never the launcher;
/// after a success it waits until everything is read. Blocks SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCHLD in this
/// thread meanwhile; a SIGHUP that is ignored stays ignored.
///
/// Errors  SystemError when nothing could be started; everything later is in the verdict
Verdict supervise(const SupervisorOptions& options);

}  // namespace longhaul::dist
