// Start-up of a command that may run on several ranks: decides from the environment whether this
// process is a rank or starts the ranks, and gives a rank its way to report errors exactly once per
// job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "dist/rank_status.h"
#include "dist/rendezvous.h"

namespace longhaul::cli {

/// What `command` knows of ranks and GPUs before its options are checked: this rank, or the ranks
/// that NPROC_PER_NODE asks for; starts nothing. Commands that are one process have one rank, but
/// `plan` and `data` speak of the training they are asked about. GPUs are counted, which asks the
/// driver, only for commands that have a device.
config::LaunchInfo launch_info(config::Command command, const dist::Environment& environment,
                               const std::function<std::int64_t()>& count_gpus);

/// What this process is to do.
struct LaunchDecision {
  enum class Kind { kRunHere, kStartRanks };
  Kind kind = Kind::kRunHere;
  config::LaunchInfo info;           // this rank; with kStartRanks the first rank of this machine
  bool is_cpu = true;                // with kStartRanks: through mpirun, else directly
  dist::MeetingPlace place{};        // with kStartRanks: of GPU ranks
  std::vector<std::string> notices;  // said once, before the first line of the run
};

/// Rank variables of mpirun, srun or our launcher win over NPROC_PER_NODE. `device` is kCpu or
/// kCuda, already decided.
///
/// Errors  UserError: CPU ranks under torchrun, CPU ranks on several nodes without mpirun or srun,
/// GPU ranks on several nodes without MASTER_ADDR, unusable variables.
///         SystemError: more than one CPU rank without MPI.
LaunchDecision decide_launch(const dist::Environment& environment, config::DeviceChoice device);

/// Starts this machine's ranks of this program with the words of `argv`, waits for them, prints the
/// job's error lines, and returns the exit status.
int run_ranks(const LaunchDecision& decision, const char* const* argv);

/// This process as one rank of a job; made first in main, before anything is printed.
class RankSession {
 public:
  /// Joins the launcher when one of ours has started this process. SystemError when its folder is
  /// not usable.
  explicit RankSession(const dist::Environment& environment);

  [[nodiscard]] dist::RankStatus& status() { return *status_; }
  [[nodiscard]] const config::LaunchInfo& info() const { return rank_.info; }
  /// Columns of the terminal that shows this rank's standard output, 0 when it is no terminal.
  [[nodiscard]] std::int64_t terminal_columns() const;

  /// Handles SIGINT, SIGTERM and SIGHUP from now on (see dist/stop_request.h); for commands that can finish
  /// a step.
  void install_stop_handlers();

  /// Reports why this rank ends: to the launcher if there is one, else on standard error, once per
  /// job. Each line is shown after `longhaul: error: `. `is_peers_fault`: another rank is to blame
  /// and speaks first if it can.
  void report_error(int exit_code, const std::vector<std::string>& lines, bool is_peers_fault);
  /// Reports a regular end (0, or 128 + signal after an interrupt).
  void report_finished(int exit_code);

 private:
  void join_job_folder(const std::filesystem::path& folder);
  [[nodiscard]] bool may_speak_for_job() const;

  dist::Environment environment_;
  dist::RankEnvironment rank_;
  std::optional<std::filesystem::path>
      job_folder_;  // shared with the other ranks of mpirun or srun on this machine
  std::optional<dist::RankStatus> status_;
};

}  // namespace longhaul::cli
