// How our own ranks are started: the command line and environment of Open MPI's mpirun, chosen so
// that it works on one machine as any user, with more ranks than cores, without network, and
// without a word from the user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "dist/rendezvous.h"

namespace longhaul::dist {

/// Open MPI's mpirun in PATH: `mpirun.openmpi` if there is one, else `mpirun`; its folder without
/// links.
std::optional<std::filesystem::path> find_mpirun(const Environment& environment);

struct MpirunRequest {
  std::filesystem::path mpirun;
  std::vector<std::string> command;  // program (a full path) and its arguments
  std::int64_t ranks = 1;
  std::filesystem::path folder;  // of the launch
  std::int64_t cores = 1;
  std::int64_t terminal_columns = 0;  // 0: no terminal
  bool can_copy_between_processes = false;
};

/// Arguments of mpirun, itself first. UserError when an argument cannot be passed through mpirun.
std::vector<std::string> mpirun_arguments(const MpirunRequest& request);

/// `inherited` (NAME=VALUE) with what mpirun and the ranks need; what the user has set himself
/// stays.
std::vector<std::string> mpirun_environment(const MpirunRequest& request,
                                            std::vector<std::string> inherited);

/// Starts mpirun in a session of its own (signals of the terminal reach only the launcher) that
/// ends with this process; its own output goes to `output_fd`. SystemError when no process can be
/// made.
pid_t start_mpirun(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment, int output_fd);

}  // namespace longhaul::dist
