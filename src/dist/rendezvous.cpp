#include "dist/rendezvous.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"

namespace longhaul::dist {
namespace {

constexpr std::int64_t kMaxRanks = 65536;
/// More than any machine has; beyond some ten thousands libgomp crashes.
constexpr std::int64_t kMaxThreads = 1024;

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

/// A variable that must be a number in [lowest, highest]; absent gives `otherwise`.
std::int64_t number_from(const Environment& environment, const std::string& name,
                         std::int64_t lowest, std::int64_t highest, std::int64_t otherwise,
                         std::vector<base::Problem>& problems) {
  const std::optional<std::string> text = environment(name);
  if (!text) {
    return otherwise;
  }
  const std::optional<std::int64_t> number = parse_number(*text);
  if (!number || *number < lowest || *number > highest) {
    problems.push_back({.where = name,
                        .what = "is not a usable number",
                        .got = *text,
                        .expected = fmt::format("{} to {}", lowest, highest)});
    return otherwise;
  }
  return *number;
}

/// Reads one launcher's four variables; local ones may be missing.
config::LaunchInfo read_info(const Environment& environment, const std::string& rank,
                             const std::string& ranks, const std::string& local_rank,
                             const std::string& local_ranks) {
  std::vector<base::Problem> problems;
  config::LaunchInfo info;
  info.ranks = number_from(environment, ranks, 1, kMaxRanks, 1, problems);
  info.rank = number_from(environment, rank, 0, kMaxRanks - 1, 0, problems);
  info.local_ranks = number_from(environment, local_ranks, 1, kMaxRanks, info.ranks, problems);
  info.local_rank = number_from(environment, local_rank, 0, kMaxRanks - 1,
                                info.rank % info.local_ranks, problems);
  if (problems.empty() && info.rank >= info.ranks) {
    problems.push_back({.where = rank,
                        .what = fmt::format("is not below {}", ranks),
                        .got = std::to_string(info.rank),
                        .expected = fmt::format("0 to {}", info.ranks - 1)});
  }
  if (!problems.empty()) {
    throw base::UserError(problems);
  }
  return info;
}

/// Slurm writes tasks per node as `4(x2),3`: nodes 0 and 1 have four, node 2 has three.
std::optional<std::int64_t> tasks_on_node(std::string_view list, std::int64_t node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    const std::size_t paren = item.find("(x");
    const std::optional<std::int64_t> tasks = parse_number(item.substr(0, paren));
    std::int64_t repeat = 1;
    if (paren != std::string_view::npos && item.back() == ')') {
      repeat = parse_number(item.substr(paren + 2, item.size() - paren - 3)).value_or(1);
    }
    if (!tasks) {
      return std::nullopt;
    }
    if (node < repeat) {
      return tasks;
    }
    node -= repeat;
  }
  return std::nullopt;
}

/// A step started by srun. An allocation's shell or batch script has SLURM variables too, but no
/// step.
bool is_slurm_step(const Environment& environment) {
  return environment("SLURM_PROCID") && environment("SLURM_STEP_ID") &&
         (environment("SLURM_STEP_NUM_TASKS") || environment("SLURM_NTASKS"));
}

config::LaunchInfo read_slurm(const Environment& environment) {
  const bool has_step_size = environment("SLURM_STEP_NUM_TASKS").has_value();
  config::LaunchInfo info = read_info(environment, "SLURM_PROCID",
                                      has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                                      "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE");
  const auto list = environment("SLURM_STEP_TASKS_PER_NODE");
  const auto node = parse_number(environment("SLURM_NODEID").value_or("0"));
  if (list && node) {
    info.local_ranks = tasks_on_node(*list, *node).value_or(info.local_ranks);
  }
  return info;
}

/// torchrun sets them all; RANK and WORLD_SIZE alone, beside NPROC_PER_NODE, describe nodes (some
/// clusters' pods do that).
bool is_torchrun(const Environment& environment) {
  const bool has_rank = environment("RANK") && environment("WORLD_SIZE");
  const bool is_per_process = environment("LOCAL_RANK") || environment("TORCHELASTIC_RUN_ID") ||
                              !environment("NPROC_PER_NODE");
  return has_rank && is_per_process;
}

void refuse_other_mpi(const Environment& environment) {
  const std::optional<std::string> size = environment("PMI_SIZE");
  if (environment("PMI_RANK") && size && *size != "1") {
    throw base::UserError(
        {.where = "PMI_RANK",
         .what =
             "these ranks were started by an MPI other than Open MPI, which cannot connect them",
         .hint = "Use Open MPI's mpirun, srun, or NPROC_PER_NODE without any of them"});
  }
}

/// Cores that a container's quota amounts to; nothing when there is none.
std::optional<std::int64_t> quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> used = parse_number(quota);
  if (!used) {
    return std::nullopt;
  }
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(*used) / period + 0.5));
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): read only
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

std::vector<std::string> environment_list() {
  std::vector<std::string> list;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    list.emplace_back(*entry);
  }
  return list;
}

RankEnvironment read_rank_environment(const Environment& environment) {
  RankEnvironment found;
  if (environment("OMPI_COMM_WORLD_RANK") && environment("OMPI_COMM_WORLD_SIZE")) {
    found.source = RankSource::kMpirun;
    found.info = read_info(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (const auto folder = environment(kLaunchFolderVariable)) {
      found.source = RankSource::kOwnLauncher;
      found.launch_folder = *folder;
    }
  } else if (is_slurm_step(environment)) {
    found.source = RankSource::kSlurm;
    found.info = read_slurm(environment);
  } else if (is_torchrun(environment)) {
    found.source = RankSource::kTorchrun;
    found.info = read_info(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (const auto folder = environment(kLaunchFolderVariable)) {
      found.source = RankSource::kOwnLauncher;
      found.launch_folder = *folder;
    }
  } else {
    refuse_other_mpi(environment);
  }
  return found;
}

MeetingPlace read_meeting_place(const Environment& environment) {
  constexpr std::int64_t kLargestPort = 65535;
  constexpr std::int64_t kUsualPort = 29500;
  std::vector<base::Problem> problems;
  MeetingPlace place;
  place.host = environment("MASTER_ADDR").value_or("");
  place.port = number_from(environment, "MASTER_PORT", 1, kLargestPort, kUsualPort, problems);
  place.has_server = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.round = environment("TORCHELASTIC_RESTART_COUNT").value_or("0");
  if (!problems.empty()) {
    throw base::UserError(problems);
  }
  return place;
}

std::optional<std::filesystem::path> job_folder(const Environment& environment,
                                                const RankEnvironment& rank) {
  if (rank.info.ranks == 1) {
    return std::nullopt;
  }
  if (rank.source == RankSource::kMpirun) {
    const auto session = environment("PMIX_SERVER_TMPDIR");
    const auto job = environment("PMIX_NAMESPACE");
    return session && job ? std::optional(std::filesystem::path(*session) / ("longhaul-" + *job))
                          : std::nullopt;
  }
  const auto job = environment("SLURM_JOB_ID");
  const auto step = environment("SLURM_STEP_ID");
  if (rank.source == RankSource::kSlurm && job && step) {
    return fmt::format("/tmp/longhaul-{}-{}.{}", getuid(), *job, *step);
  }
  return std::nullopt;
}

RankRequest read_rank_request(const Environment& environment) {
  std::vector<base::Problem> problems;
  RankRequest request;
  request.is_given = environment("NPROC_PER_NODE").has_value();
  request.ranks_per_node = number_from(environment, "NPROC_PER_NODE", 1, 4096, 1, problems);
  request.nodes = number_from(environment, "NNODES", 1, kMaxRanks, 1, problems);
  request.node_rank = number_from(environment, "NODE_RANK", 0, kMaxRanks - 1, 0, problems);
  if (problems.empty() && request.node_rank >= request.nodes) {
    problems.push_back({.where = "NODE_RANK",
                        .what = "is not below NNODES",
                        .got = std::to_string(request.node_rank),
                        .expected = fmt::format("0 to {}", request.nodes - 1)});
  }
  if (!problems.empty()) {
    throw base::UserError(problems);
  }
  return request;
}

std::int64_t available_cores() {
  cpu_set_t set;
  std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cores = std::max(1, CPU_COUNT(&set));
  }
  return std::min(cores, quota_cores().value_or(cores));
}

bool is_thread_count(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = text.find(',');
    is_last = comma == std::string_view::npos;
    std::string_view item = text.substr(0, comma);
    item.remove_prefix(std::min(item.find_first_not_of(kSpace), item.size()));
    item = item.substr(0, item.find_last_not_of(kSpace) + 1);
    const std::optional<std::int64_t> count = parse_number(item);
    if (!count || *count < 1 || *count > kMaxThreads) {
      return false;
    }
    text.remove_prefix(is_last ? 0 : comma + 1);
  }
  return true;
}

void check_thread_count(const Environment& environment) {
  constexpr const char* kName = "OMP_NUM_THREADS";
  const std::optional<std::string> text = environment(kName);
  if (text && !is_thread_count(*text)) {
    throw base::UserError({.where = kName,
                           .what = "is not a usable number of threads",
                           .got = text->empty() ? "nothing" : *text,
                           .expected = fmt::format("1 to {}", kMaxThreads),
                           .hint = "Unset it to use all cores"});
  }
}

bool has_wait_policy(const Environment& environment) {
  return environment("OMP_WAIT_POLICY") || environment(kSpinVariable);
}

std::int64_t default_threads(std::int64_t cores, std::int64_t local_ranks) {
  return std::max<std::int64_t>(1, cores / std::max<std::int64_t>(1, local_ranks));
}

}  // namespace longhaul::dist
