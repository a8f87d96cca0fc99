// How GPU ranks of this machine are started: one process per rank below a small process of its own,
// which plays the part that mpirun has for CPU ranks. Several machines: the launcher runs on each,
// and the ranks meet at MASTER_ADDR:MASTER_PORT.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dist/rendezvous.h"

namespace longhaul::dist {

struct RankStarterRequest {
  std::vector<std::string> command;  // program (a full path) and its arguments
  std::int64_t ranks_per_node = 1;
  std::int64_t nodes = 1;
  std::int64_t node_rank = 0;
  std::filesystem::path folder;  // of the launch
  std::int64_t cores = 1;
  std::int64_t terminal_columns = 0;  // 0: no terminal
  MeetingPlace place;
};

/// Variables of local rank `local_rank`: `inherited` (NAME=VALUE) with what makes the process a
/// rank; what the user has set himself stays.
std::vector<std::string> rank_environment(const RankStarterRequest& request,
                                          std::int64_t local_rank,
                                          std::vector<std::string> inherited);

/// A free port of this machine for ranks that meet on it. SystemError when there is none.
std::int64_t free_port();

/// Starts the ranks in a session of their own; their words before they join the launcher go to
/// `output_fd`. The process returned ends when every rank has: with 0, or with the first failing
/// rank's status (128 + signal). SystemError when no process can be made.
pid_t start_ranks(const RankStarterRequest& request, const std::vector<std::string>& inherited,
                  int output_fd);

}  // namespace longhaul::dist
