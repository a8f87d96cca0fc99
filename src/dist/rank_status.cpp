#include "dist/rank_status.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>

#include "dist/stop_request.h"

namespace longhaul::dist {
namespace {

constexpr int kHeartbeatMs = 200;
constexpr int kSystemErrorExit = 3;

/// Makes descriptor `to` write into the launcher's pipe.
void redirect(int to, const std::filesystem::path& pipe) {
  const int file = open(pipe.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0 || dup2(file, to) < 0) {
    throw base::SystemError(
        {.where = pipe.string(),
         .what = "cannot write to the launcher: " + std::generic_category().message(errno)});
  }
  close(file);
}

/// Open MPI's own remarks, such as the one about a peer that died in mid-copy, stay with mpirun's: the launcher names
/// the rank and the reason, and shows theirs when it knows no better one. Call before MPI starts and before stderr moves.
void keep_remarks_of_mpi_apart() {
  if (const int starters_stderr = fcntl(STDERR_FILENO, F_DUPFD, STDERR_FILENO + 1);
      starters_stderr >= 0) {
    setenv("OPAL_OUTPUT_STDERR_FD", std::to_string(starters_stderr).c_str(), 0);
  }
}

/// All ranks and mpirun clear away at the same time and disturb one another, so it takes a few turns.
void remove_folder(const std::filesystem::path& folder) {
  constexpr int kTurns = 10;
  constexpr std::chrono::milliseconds kPause{50};
  std::error_code ignored;
  for (int turn = 0; turn < kTurns && std::filesystem::exists(folder, ignored); ++turn) {
    std::filesystem::remove_all(folder, ignored);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

RankStatus::RankStatus() : own_page_(std::make_unique<RankPage>()), page_(own_page_.get()) {}

RankStatus::RankStatus(const std::filesystem::path& folder, std::int64_t rank)
    : folder_(folder), rank_(rank) {
  shared_page_.emplace(rank_page_path(folder, rank));
  launcher_.emplace(launcher_page_path(folder));
  page_ = &**shared_page_;
  launcher_process_ = ProcessHandle((*launcher_)->pid);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  keep_remarks_of_mpi_apart();
  redirect(STDOUT_FILENO, output_pipe_path(folder));
  redirect(STDERR_FILENO, error_pipe_path(folder));
  start_heartbeat();
}

RankStatus::RankStatus(const std::filesystem::path& folder, std::int64_t rank,
                       std::int64_t local_ranks, StuckPeers stuck_peers,
                       std::function<void(const std::string& line)> on_peer_fault)
    : folder_(folder),
      rank_(rank),
      stuck_peers_(stuck_peers),
      on_peer_fault_(std::move(on_peer_fault)) {
  shared_page_.emplace(rank_page_path(folder, rank));
  page_ = &**shared_page_;
  peers_.emplace(folder, rank, local_ranks);
  start_heartbeat();
}

void RankStatus::start_heartbeat() {
  starter_process_ = ProcessHandle(getppid());
  wake_ = eventfd(0, EFD_CLOEXEC);
  page_->pid = getpid();
  heartbeat_ = std::jthread([this](const std::stop_token& stop) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals belong to the thread that trains
    keep_heartbeat(stop);
  });
}

RankStatus::~RankStatus() {
  if (has_launcher()) {
    ignore_stop_signals();  // mpirun may send one while the process winds up
  }
  if (heartbeat_.joinable()) {
    heartbeat_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
    heartbeat_.join();
  }
  if (wake_ >= 0) {
    close(wake_);
  }
  if (peers_ && page_->outcome == Outcome::kFinished) {
    std::error_code ignored;
    std::filesystem::remove(rank_page_path(folder_, rank_), ignored);
    std::filesystem::remove(folder_, ignored);  // succeeds for the last rank, which finds it empty
  }
}

void RankStatus::keep_heartbeat(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    ++page_->heartbeat;
    std::array<pollfd, 3> events{};
    events[0].fd = launcher_process_.descriptor();
    events[1].fd = starter_process_.descriptor();
    events[2].fd = wake_;
    for (pollfd& event : events) {
      event.events = POLLIN;
    }
    poll(events.data(), events.size(), kHeartbeatMs);
    if (stop.stop_requested()) {
      return;
    }
    check_starters();
    check_peers();
  }
}

/// When launcher or starter has gone, nobody is left to report to: the rank ends on the spot and
/// takes the launcher's folder along, which its owner can no longer remove.
void RankStatus::check_starters() const {
  const bool is_launcher_gone = has_launcher() && !launcher_process_.is_alive();
  if (is_launcher_gone) {
    remove_folder(folder_);
  }
  const bool is_starter_gone = page_->outcome == Outcome::kRunning && !starter_process_.is_alive();
  if (is_launcher_gone || is_starter_gone) {
    kill(getpid(), SIGKILL);
  }
}

void RankStatus::check_peers() {
  if (!peers_ || page_->outcome != Outcome::kRunning) {
    return;
  }
  if (const auto fault = peers_->look(std::chrono::milliseconds(kHeartbeatMs))) {
    record_outcome(*page_, Outcome::kPeerError, kSystemErrorExit, fault->line);
    on_peer_fault_(fault->line);
    if (stuck_peers_ == StuckPeers::kKill) {
      peers_->end_stuck_peers();
    }
    _exit(kSystemErrorExit);
  }
}

void RankStatus::step_has_ended(std::int64_t step) {
  page_->finished_steps = step;
  first_step_has_ended();
}

void RankStatus::report_error(int exit_code, std::string_view lines, bool is_peers_fault) {
  record_outcome(*page_, is_peers_fault ? Outcome::kPeerError : Outcome::kError, exit_code, lines);
}

void RankStatus::report_finished(int exit_code) {
  record_outcome(*page_, Outcome::kFinished, exit_code, {});
}

void RankStatus::operation_begins(std::string_view name, std::int64_t step) noexcept {
  page_->operation.set(name);
  page_->step = std::max(page_->step.load(), step);  // groups may be told of a new step one by one
  page_->is_in_operation = 1;
}

void RankStatus::operation_ends() noexcept { page_->is_in_operation = 0; }

void RankStatus::rank_aborts(const std::string& line) noexcept {
  record_outcome(*page_, Outcome::kError, kSystemErrorExit, line);
}

}  // namespace longhaul::dist
