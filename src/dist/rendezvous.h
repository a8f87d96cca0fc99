// Who am I: the rank of this process from the variables of whatever started it, and how many ranks
// the user wants when nothing has. Together with cli the only reader of the environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace longhaul::dist {

/// A variable's value, or nothing when it is not set. Tests give their own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();
/// All variables of this process as NAME=VALUE.
std::vector<std::string> environment_list();

/// Set for the ranks that our own launcher starts.
constexpr const char* kLaunchFolderVariable = "LONGHAUL_LAUNCH_FOLDER";
/// Width of the launcher's terminal in columns, when it has one.
constexpr const char* kTerminalColumnsVariable = "LONGHAUL_TERMINAL_COLUMNS";

enum class RankSource { kNobody, kOwnLauncher, kMpirun, kSlurm, kTorchrun };

/// What the environment says about this process.
struct RankEnvironment {
  RankSource source = RankSource::kNobody;
  config::LaunchInfo info;
  std::filesystem::path launch_folder;  // kOwnLauncher only
};

/// Where GPU ranks find one another.
struct MeetingPlace {
  std::string host{};       // MASTER_ADDR; empty: the environment names none
  std::int64_t port = 0;    // MASTER_PORT
  bool has_server = false;  // torchrun's agent serves it
  std::string round{};      // tells restarts of one job apart
};
/// UserError when MASTER_PORT is no port. Without MASTER_ADDR the place has no host.
MeetingPlace read_meeting_place(const Environment& environment);

/// UserError when variables contradict each other or are no numbers.
RankEnvironment read_rank_environment(const Environment& environment);

/// Folder through which the ranks of mpirun or srun on this machine know of each other; nothing for
/// a single rank and for starters that name no job. mpirun removes it with its session; after srun
/// the last rank to end regularly does.
std::optional<std::filesystem::path> job_folder(const Environment& environment,
                                                const RankEnvironment& rank);

/// What NPROC_PER_NODE, NNODES and NODE_RANK ask for.
struct RankRequest {
  std::int64_t ranks_per_node = 1;
  std::int64_t nodes = 1;
  std::int64_t node_rank = 0;
  bool is_given = false;  // NPROC_PER_NODE is set
};
/// UserError, all problems at once.
RankRequest read_rank_request(const Environment& environment);

/// Cores that this process may use (affinity and the container's quota), at least 1.
std::int64_t available_cores();

/// True for what OpenMP takes as OMP_NUM_THREADS: a whole number from 1 to 1024, or a list of such
/// numbers, one for each level of nesting. Needs no initialised library.
bool is_thread_count(std::string_view text);

/// UserError when OMP_NUM_THREADS is set to anything else.
void check_thread_count(const Environment& environment);

/// How long threads that wait for work spin before they sleep: what libgomp itself does once it knows
/// that threads outnumber cores. Its default of some hundred thousand turns takes the cores that
/// other processes (ranks among them) need, and the slowest thread then waits for its turn.
constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
constexpr const char* kSpinCount = "1000";

/// True when the user has decided how threads wait, by either of libgomp's variables.
bool has_wait_policy(const Environment& environment);

/// Threads per rank when OMP_NUM_THREADS is not set: cores / local ranks, at least 1.
std::int64_t default_threads(std::int64_t cores, std::int64_t local_ranks);

}  // namespace longhaul::dist
