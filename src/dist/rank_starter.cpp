#include "dist/rank_starter.h"

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "dist/starter_process.h"
#include "dist/stop_request.h"
#include "dist/variables.h"

namespace longhaul::dist {
namespace {

constexpr int kCannotExecute = 127;

/// What one rank's exec takes, made before the fork.
struct RankProcess {
  std::int64_t rank = 0;
  std::vector<std::string> environment;
  std::vector<char*> environment_pointers;
  pid_t pid = 0;
};

void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Between fork and exec: system calls only.
[[noreturn]] void become_rank(char* const* arguments, char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives its starter
  reset_signals();
  execve(arguments[0], arguments, environment);
  constexpr std::string_view kMessage = "cannot be executed\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kCannotExecute);
}

int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Says who has failed first, in the words that the launcher knows from mpirun.
void report_failure(std::int64_t rank, int status) {
  std::array<char, 128> line{};
  const int length =
      WIFSIGNALED(status)
          ? std::snprintf(line.data(), line.size(), "process rank %lld exited on signal %d\n",
                          static_cast<long long>(rank), WTERMSIG(status))
          : std::snprintf(line.data(), line.size(), "Process name: [[0,0],%lld], exit status %d\n",
                          static_cast<long long>(rank), WEXITSTATUS(status));
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line.data(), static_cast<std::size_t>(length));
}

/// A rank has failed. The launcher ends the others when it knows; it does not know of a rank that
/// never came up. Ranks that were asked to stop end one by one, and the last may still be saving.
void end_the_others(const std::vector<RankProcess>& ranks, int status) {
  constexpr timespec kGrace{.tv_sec = 2, .tv_nsec = 0};
  for (const int stop : kStopSignals) {
    if (exit_status(status) == 128 + stop) {
      return;
    }
  }
  nanosleep(&kGrace, nullptr);
  for (const RankProcess& rank : ranks) {
    if (rank.pid > 0) {
      kill(rank.pid, SIGKILL);
    }
  }
}

/// The starter itself; the launcher that forks has one thread.
[[noreturn]] void become_starter(char* const* arguments, std::vector<RankProcess>& ranks,
                                 int output_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // as the ranks follow their starter, it follows the launcher
  leave_launchers_session(output_fd);
  int first_failure = 0;
  for (RankProcess& rank : ranks) {
    rank.pid = fork();
    if (rank.pid == 0) {
      become_rank(arguments, rank.environment_pointers.data());
    }
    if (rank.pid < 0) {
      first_failure = kCannotExecute;
    }
  }
  int status = 0;
  for (pid_t ended = wait(&status); ended > 0 || errno == EINTR; ended = wait(&status)) {
    for (RankProcess& rank : ranks) {
      if (ended <= 0 || rank.pid != ended) {
        continue;
      }
      rank.pid = 0;
      if (first_failure == 0 && exit_status(status) != 0) {
        first_failure = exit_status(status);
        report_failure(rank.rank, status);
        end_the_others(ranks, status);
      }
    }
  }
  _exit(first_failure);
}

}  // namespace

std::vector<std::string> rank_environment(const RankStarterRequest& request,
                                          std::int64_t local_rank,
                                          std::vector<std::string> inherited) {
  std::vector<std::string>& variables = inherited;
  const std::int64_t rank = request.node_rank * request.ranks_per_node + local_rank;
  set_launch_variables(variables, request.folder, request.terminal_columns);
  set_always(variables, "RANK", std::to_string(rank));
  set_always(variables, "WORLD_SIZE", std::to_string(request.ranks_per_node * request.nodes));
  set_always(variables, "LOCAL_RANK", std::to_string(local_rank));
  set_always(variables, "LOCAL_WORLD_SIZE", std::to_string(request.ranks_per_node));
  set_always(variables, "MASTER_ADDR", request.place.host);
  set_always(variables, "MASTER_PORT", std::to_string(request.place.port));
  set_thread_variables(variables, request.cores, request.ranks_per_node);
  return inherited;
}

std::int64_t free_port() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool is_found = socket_fd >= 0 &&
                        bind(socket_fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket_fd >= 0) {
    close(socket_fd);
  }
  if (!is_found) {
    throw base::SystemError({.where = "rendezvous",
                             .what = "no free port: " + std::generic_category().message(error),
                             .hint = "Name one with MASTER_PORT"});
  }
  return ntohs(address.sin_port);
}

pid_t start_ranks(const RankStarterRequest& request, const std::vector<std::string>& inherited,
                  int output_fd) {
  const std::vector<char*> arguments = pointers_to(request.command);
  std::vector<RankProcess> ranks(static_cast<std::size_t>(request.ranks_per_node));
  for (std::size_t local = 0; local < ranks.size(); ++local) {
    ranks[local].rank =
        request.node_rank * request.ranks_per_node + static_cast<std::int64_t>(local);
    ranks[local].environment =
        rank_environment(request, static_cast<std::int64_t>(local), inherited);
    ranks[local].environment_pointers = pointers_to(ranks[local].environment);
  }
  const pid_t child = fork();
  if (child < 0) {
    throw base::SystemError(
        {.where = request.command[0],
         .what = "cannot be started: " + std::generic_category().message(errno)});
  }
  if (child == 0) {
    become_starter(arguments.data(), ranks, output_fd);
  }
  return child;
}

}  // namespace longhaul::dist
