#include "cli/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/program.h"
#include "cli/print.h"
#include "dist/mpi_library.h"
#include "dist/mpirun.h"
#include "dist/rank_starter.h"
#include "dist/stop_request.h"
#include "dist/supervisor.h"

namespace longhaul::cli {
namespace {

using dist::RankSource;

constexpr const char* kHowToStartCpuRanks =
    "Start CPU ranks with NPROC_PER_NODE=N longhaul …, mpirun -n N longhaul …, or srun -n N "
    "longhaul …";

void print_errors(const std::vector<std::string>& lines) {
  std::fflush(stdout);
  for (const std::string& line : lines) {
    print_text(stderr, fmt::format("longhaul: error: {}\n", line));
  }
}

void require_mpi(const dist::Environment& environment, std::int64_t ranks) {
  if (!dist::find_mpi_library()) {
    base::Problem problem = dist::missing_mpi_library();
    problem.what = fmt::format("{} CPU ranks were asked for, but {}", ranks, problem.what);
    throw base::SystemError(problem);
  }
  if (!dist::find_mpirun(environment)) {
    throw base::SystemError(
        {.where = "MPI",
         .what = fmt::format("{} CPU ranks were asked for, but there is no mpirun in PATH", ranks),
         .hint = "Install Open MPI (Debian: apt install openmpi-bin), or use NPROC_PER_NODE=1"});
  }
}

std::string_view name_of(RankSource source) {
  switch (source) {
    case RankSource::kMpirun:
      return "mpirun";
    case RankSource::kSlurm:
      return "srun";
    case RankSource::kTorchrun:
      return "torchrun";
    default:
      return "the launcher";
  }
}

/// This process was started as a rank by somebody else.
LaunchDecision decide_as_rank(const dist::Environment& environment,
                              const dist::RankEnvironment& rank, bool is_cpu) {
  LaunchDecision decision{.kind = LaunchDecision::Kind::kRunHere, .info = rank.info, .notices = {}};
  if (rank.source == RankSource::kTorchrun && is_cpu) {
    throw base::UserError({.where = "torchrun",
                           .what = "cannot start CPU ranks, which talk through MPI",
                           .hint = kHowToStartCpuRanks});
  }
  if (rank.source == RankSource::kOwnLauncher) {
    return decision;
  }
  const dist::RankRequest request = dist::read_rank_request(environment);
  const bool has_no_effect = request.is_given && request.ranks_per_node != rank.info.local_ranks;
  if (has_no_effect && rank.info.rank == 0) {
    decision.notices.push_back(
        fmt::format("NPROC_PER_NODE={} has no effect: {} has started {} rank{} on this machine",
                    request.ranks_per_node, name_of(rank.source), rank.info.local_ranks,
                    rank.info.local_ranks == 1 ? "" : "s"));
  }
  if (is_cpu && rank.info.ranks > 1 && !dist::find_mpi_library()) {
    require_mpi(environment, rank.info.ranks);
  }
  return decision;
}

/// The ranks of launch_info().
config::LaunchInfo launch_ranks(config::Command command, const dist::Environment& environment) {
  if (command == config::Command::kInfer || command == config::Command::kExport) {
    return {};
  }
  const dist::RankEnvironment rank = dist::read_rank_environment(environment);
  if (rank.source != RankSource::kNobody) {
    return rank.info;
  }
  const dist::RankRequest request = dist::read_rank_request(environment);
  config::LaunchInfo info;
  info.ranks = request.ranks_per_node * request.nodes;
  info.local_ranks = request.ranks_per_node;
  return info;
}

/// GPU ranks of one machine meet on a port that is free now; those of several where the user says.
dist::MeetingPlace meeting_place_of(const dist::Environment& environment,
                                    const dist::RankRequest& request) {
  dist::MeetingPlace place = dist::read_meeting_place(environment);
  if (request.nodes > 1 && place.host.empty()) {
    throw base::UserError(
        {.where = "MASTER_ADDR",
         .what = "ranks on several nodes need a place to meet",
         .hint = "Set MASTER_ADDR to the machine with NODE_RANK=0, on every node"});
  }
  if (request.nodes == 1) {
    place.host = "127.0.0.1";
    if (!environment("MASTER_PORT")) {
      place.port = dist::free_port();
    }
  }
  return place;
}

}  // namespace

config::LaunchInfo launch_info(config::Command command, const dist::Environment& environment,
                               const std::function<std::int64_t()>& count_gpus) {
  config::LaunchInfo info = launch_ranks(command, environment);
  if (config::computes(command) || command == config::Command::kPlan) {
    info.usable_gpus = count_gpus();
  }
  return info;
}

LaunchDecision decide_launch(const dist::Environment& environment, config::DeviceChoice device) {
  const bool is_cpu = device != config::DeviceChoice::kCuda;
  const dist::RankEnvironment rank = dist::read_rank_environment(environment);
  if (rank.source != RankSource::kNobody) {
    return decide_as_rank(environment, rank, is_cpu);
  }
  const dist::RankRequest request = dist::read_rank_request(environment);
  if (request.nodes > 1 && is_cpu) {
    throw base::UserError({.where = "NNODES",
                           .what = "CPU ranks on several nodes are not started from here",
                           .got = std::to_string(request.nodes),
                           .expected = "1",
                           .hint = "Use mpirun -n RANKS --host a:N,b:N longhaul …, or srun"});
  }
  LaunchDecision decision;
  decision.info.ranks = request.ranks_per_node * request.nodes;
  decision.info.local_ranks = request.ranks_per_node;
  if (decision.info.ranks == 1) {
    return decision;
  }
  decision.info.rank = request.node_rank * request.ranks_per_node;
  decision.is_cpu = is_cpu;
  if (is_cpu) {
    require_mpi(environment, decision.info.ranks);
  } else {
    decision.place = meeting_place_of(environment, request);
  }
  decision.kind = LaunchDecision::Kind::kStartRanks;
  return decision;
}

int run_ranks(const LaunchDecision& decision, const char* const* argv) {
  dist::SupervisorOptions options;
  if (decision.is_cpu) {
    options.mpirun = dist::find_mpirun(dist::process_environment()).value_or("mpirun");
  }
  options.ranks = decision.info.local_ranks;
  options.nodes = decision.info.ranks / decision.info.local_ranks;
  options.node_rank = decision.info.rank / decision.info.local_ranks;
  options.place = decision.place;
  options.command.push_back(base::program_file().string());
  for (const char* const* word = argv + 1; *word != nullptr; ++word) {
    options.command.emplace_back(*word);
  }
  std::fflush(stdout);
  const dist::Verdict verdict = dist::supervise(options);
  print_errors(verdict.error_lines);
  return verdict.exit_code;
}

RankSession::RankSession(const dist::Environment& environment)
    : environment_(environment), rank_(dist::read_rank_environment(environment)) {
  if (rank_.source == RankSource::kOwnLauncher) {
    status_.emplace(rank_.launch_folder, rank_.info.local_rank);
  } else if (const auto folder = dist::job_folder(environment, rank_)) {
    join_job_folder(*folder);
  }
  if (!status_) {
    status_.emplace();
  }
}

/// Ranks of mpirun and srun watch one another; without a usable folder they do without.
void RankSession::join_job_folder(const std::filesystem::path& folder) {
  mkdir(folder.c_str(), S_IRWXU);
  struct stat found {};
  const bool is_ours =
      lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == getuid();
  if (!is_ours) {
    return;
  }
  job_folder_ = folder;
  const auto stuck_peers = rank_.source == RankSource::kMpirun ? dist::StuckPeers::kLeaveToStarter
                                                               : dist::StuckPeers::kKill;
  status_.emplace(folder, rank_.info.rank, rank_.info.local_ranks, stuck_peers,
                  [this](const std::string& line) {
                    if (!line.empty() && may_speak_for_job()) {
                      print_errors({line});
                    }
                  });
}

std::int64_t RankSession::terminal_columns() const {
  if (!status_->has_launcher()) {
    winsize size{};
    const bool is_terminal = isatty(STDOUT_FILENO) != 0;
    return is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  }
  const std::string text = environment_(dist::kTerminalColumnsVariable).value_or("0");
  std::int64_t columns = 0;
  std::from_chars(text.data(), text.data() + text.size(), columns);
  return columns;
}

void RankSession::install_stop_handlers() {
  dist::install_stop_handlers(status_->launcher_page(),
                              status_->has_launcher() ? &status_->page() : nullptr);
}

/// True for the first rank of the job on this machine that asks; ranks of mpirun and srun have no
/// launcher of ours to choose between them. Without a common folder it is rank 0.
bool RankSession::may_speak_for_job() const {
  if (!job_folder_) {
    return rank_.info.rank == 0;
  }
  const std::filesystem::path claim = *job_folder_ / "has-spoken";
  const int file = open(claim.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file >= 0) {
    close(file);
    return true;
  }
  return errno != EEXIST;  // better twice than never
}

void RankSession::report_error(int exit_code, const std::vector<std::string>& lines,
                               bool is_peers_fault) {
  std::string text;
  for (const std::string& line : lines) {
    text += line + '\n';
  }
  status_->report_error(exit_code, text, is_peers_fault);
  if (status_->has_launcher()) {
    return;
  }
  if (is_peers_fault) {
    // The rank at fault may know better and is about to say so.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  if (may_speak_for_job()) {
    print_errors(lines);
  }
}

void RankSession::report_finished(int exit_code) { status_->report_finished(exit_code); }

}  // namespace longhaul::cli
