#include "dist/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "dist/launch_folder.h"
#include "dist/mpirun.h"
#include "dist/process_copy.h"
#include "dist/rank_watch.h"
#include "dist/rendezvous.h"

namespace longhaul::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTickMs = 100;
/// Longest time that one tick counts for: a launcher that was suspended itself must not blame its
/// ranks.
constexpr milliseconds kLongestTick{500};
/// What a failing job gets to record reasons and end by itself before it is killed.
constexpr milliseconds kGrace{1000};
/// What mpirun gets after its ranks are gone.
constexpr milliseconds kStarterGrace{3000};
/// Signals closer together than this are one wish (some tools signal a process and its group).
constexpr milliseconds kSameWish{100};

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) {
      close(fd_);
    }
    fd_ = -1;
  }

 private:
  int fd_;
};

/// The signals that a launcher answers, taken from a descriptor while this object lives.
class Signals {
 public:
  Signals() : fd_(-1) {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGTSTP, SIGCHLD}) {
      sigaddset(&set_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    fd_ = signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  [[nodiscard]] int descriptor() const { return fd_; }
  /// The next pending signal, or 0.
  [[nodiscard]] int next() const {
    signalfd_siginfo info{};
    return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  int fd_;
};

void write_all(int fd, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(fd, data, bytes);
    if (written < 0 && errno != EINTR) {
      return;  // nobody reads any more
    }
    if (written > 0) {
      data += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }
}

/// Moves what is waiting in `from` to `sink`.
template <typename Sink>
void drain(int from, const Sink& sink) {
  constexpr int kChunksPerTurn = 64;
  std::array<char, 16384> buffer;
  for (int i = 0; i < kChunksPerTurn; ++i) {
    const ssize_t got = read(from, buffer.data(), buffer.size());
    if (got <= 0) {
      return;
    }
    sink(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::int64_t terminal_columns(int fd) {
  winsize size{};
  return isatty(fd) != 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 0;
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options),
        folder_(options.ranks),
        output_pipe_(
            open(output_pipe_path(folder_.path()).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)),
        error_pipe_(open(error_pipe_path(folder_.path()).c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC)),
        ranks_(static_cast<std::size_t>(options.ranks)) {}

  Verdict run();

 private:
  void start();
  void wait_for_something();
  void pass_output_on();
  void answer_signals();
  void answer_stop(int signal);
  void suspend();
  void watch(milliseconds elapsed);
  void begin_to_end(milliseconds grace);
  void end_ranks_when_due();
  void send_to_ranks(int signal) const;
  void collect_starter();
  [[nodiscard]] bool all_ranks_gone() const;
  [[nodiscard]] Verdict verdict() const;
  [[nodiscard]] std::int64_t steps_finished_by_all() const;

  SupervisorOptions options_;
  Signals signals_;
  LaunchFolder folder_;
  Descriptor output_pipe_;
  Descriptor error_pipe_;
  std::optional<Descriptor> starter_output_;
  pid_t starter_ = 0;
  std::optional<int> starter_status_;
  std::string starter_text_;
  std::vector<RankWatch> ranks_;
  std::optional<Clock::time_point> kill_at_;  // set once the job is to end
  bool stops_at_once_ = false;
  int first_stop_signal_ = 0;
  Clock::time_point last_stop_{};
};

void Supervisor::start() {
  std::array<int, 2> pipe_ends{};
  if (output_pipe_.get() < 0 || error_pipe_.get() < 0 ||
      pipe2(pipe_ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw base::SystemError(
        {.where = folder_.path().string(),
         .what = "cannot make pipes: " + std::generic_category().message(errno)});
  }
  starter_output_.emplace(pipe_ends[0]);
  const Descriptor write_end(pipe_ends[1]);
  const MpirunRequest request{.mpirun = options_.mpirun,
                              .command = options_.command,
                              .ranks = options_.ranks,
                              .folder = folder_.path(),
                              .cores = available_cores(),
                              .terminal_columns = terminal_columns(options_.output_fd),
                              .can_copy_between_processes = can_copy_between_processes()};
  starter_ = start_mpirun(mpirun_arguments(request),
                          mpirun_environment(request, environment_list()), write_end.get());
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> events;
  for (const int fd :
       {signals_.descriptor(), output_pipe_.get(), error_pipe_.get(), starter_output_->get()}) {
    events.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  }
  for (const RankWatch& rank : ranks_) {
    if (rank.process() && !rank.has_ended()) {
      events.push_back({.fd = rank.process()->descriptor(), .events = POLLIN, .revents = 0});
    }
  }
  poll(events.data(), events.size(), kTickMs);
  if ((events[3].revents & POLLHUP) != 0 && (events[3].revents & POLLIN) == 0) {
    starter_output_->reset();  // closed: poll would return at once for ever
  }
}

void Supervisor::pass_output_on() {
  drain(output_pipe_.get(),
        [&](const char* data, std::size_t bytes) { write_all(options_.output_fd, data, bytes); });
  drain(error_pipe_.get(),
        [&](const char* data, std::size_t bytes) { write_all(options_.error_fd, data, bytes); });
  if (starter_output_->get() >= 0) {
    drain(starter_output_->get(),
          [&](const char* data, std::size_t bytes) { starter_text_.append(data, bytes); });
  }
}

std::int64_t Supervisor::steps_finished_by_all() const {
  std::int64_t fewest = folder_.rank(0).finished_steps;
  for (std::int64_t rank = 1; rank < options_.ranks; ++rank) {
    fewest = std::min<std::int64_t>(fewest, folder_.rank(rank).finished_steps);
  }
  return fewest;
}

/// Ctrl-Z: the ranks live in another session, so they are stopped and continued from here.
void Supervisor::suspend() {
  send_to_ranks(SIGSTOP);
  raise(SIGSTOP);
  send_to_ranks(SIGCONT);
}

void Supervisor::answer_signals() {
  while (const int signal = signals_.next()) {
    if (signal == SIGINT || signal == SIGTERM) {
      answer_stop(signal);
    } else if (signal == SIGTSTP) {
      suspend();
    }
  }
}

void Supervisor::answer_stop(int signal) {
  const auto now = Clock::now();
  if (kill_at_ || (first_stop_signal_ != 0 && now - last_stop_ < kSameWish)) {
    return;
  }
  last_stop_ = now;
  const bool is_first = first_stop_signal_ == 0;
  if (is_first) {
    first_stop_signal_ = signal;
  }
  if (!is_first || steps_finished_by_all() == 0) {
    stops_at_once_ = true;
    begin_to_end(milliseconds(0));
    return;
  }
  folder_.launcher().stop_signal = signal;
  folder_.launcher().stop_requests = 1;
  options_.notice("stopping after this step and its checkpoint (once more: stops at once)");
}

void Supervisor::watch(milliseconds elapsed) {
  bool has_trouble = false;
  bool is_stuck = false;
  for (std::int64_t rank = 0; rank < options_.ranks; ++rank) {
    RankWatch& watch = ranks_[static_cast<std::size_t>(rank)];
    const RankPage& page = folder_.rank(rank);
    watch.look(page, elapsed, options_.limits, !kill_at_.has_value());
    const Outcome outcome = page.outcome;
    has_trouble = has_trouble || watch.died_ns() || outcome == Outcome::kError ||
                  outcome == Outcome::kPeerError;
    is_stuck = is_stuck || !watch.stuck().empty();
  }
  if (has_trouble || is_stuck || starter_status_) {
    begin_to_end(is_stuck || starter_status_ ? milliseconds(0) : kGrace);
    return;
  }
  for (std::int64_t rank = 0; rank < options_.ranks && first_stop_signal_ == 0; ++rank) {
    if (const int signal = folder_.rank(rank).stop_signal; signal != 0) {
      answer_stop(signal);  // somebody signalled a rank: the whole job stops
    }
  }
}

void Supervisor::begin_to_end(milliseconds grace) {
  if (!kill_at_) {
    kill_at_ = Clock::now() + grace;
  }
}

void Supervisor::send_to_ranks(int signal) const {
  for (const RankWatch& rank : ranks_) {
    if (rank.process()) {
      rank.process()->send(signal);
    }
  }
}

void Supervisor::end_ranks_when_due() {
  if (!kill_at_ || Clock::now() < *kill_at_) {
    return;
  }
  send_to_ranks(SIGKILL);
  if (!starter_status_ && Clock::now() > *kill_at_ + kStarterGrace) {
    kill(starter_, SIGKILL);
  }
}

void Supervisor::collect_starter() {
  int status = 0;
  if (!starter_status_ && waitpid(starter_, &status, WNOHANG) == starter_) {
    starter_status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

bool Supervisor::all_ranks_gone() const {
  return std::none_of(ranks_.begin(), ranks_.end(),
                      [](const RankWatch& rank) { return rank.is_running(); });
}

Verdict Supervisor::verdict() const {
  if (stops_at_once_) {
    return {.exit_code = 128 + first_stop_signal_, .error_lines = {}};
  }
  std::vector<RankEnd> ends;
  for (std::int64_t rank = 0; rank < options_.ranks; ++rank) {
    const RankPage& page = folder_.rank(rank);
    const RankWatch& watched = ranks_[static_cast<std::size_t>(rank)];
    ends.push_back({.rank = rank,
                    .place = rank_place(page, rank),
                    .outcome = page.outcome,
                    .exit_code = page.exit_code,
                    .outcome_ns = page.outcome_ns,
                    .lines = recorded_lines(page),
                    .died_ns = watched.died_ns(),
                    .stuck = watched.stuck()});
  }
  StarterEnd starter{.status = starter_status_.value_or(0), .output = {}};
  std::size_t begin = 0;
  while (begin < starter_text_.size()) {
    const std::size_t end = std::min(starter_text_.find('\n', begin), starter_text_.size());
    starter.output.push_back(starter_text_.substr(begin, end - begin));
    begin = end + 1;
  }
  return judge(ends, starter);
}

Verdict Supervisor::run() {
  start();
  auto last = Clock::now();
  while (!starter_status_ || !all_ranks_gone()) {
    wait_for_something();
    pass_output_on();
    answer_signals();
    collect_starter();
    const auto now = Clock::now();
    watch(std::min(kLongestTick, std::chrono::duration_cast<milliseconds>(now - last)));
    last = now;
    end_ranks_when_due();
  }
  pass_output_on();
  return verdict();
}

}  // namespace

Verdict supervise(const SupervisorOptions& options) { return Supervisor(options).run(); }

}  // namespace longhaul::dist
