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
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "dist/launch_folder.h"
#include "dist/mpirun.h"
#include "dist/output_writer.h"
#include "dist/process_copy.h"
#include "dist/rank_starter.h"
#include "dist/rank_watch.h"
#include "dist/rendezvous.h"
#include "dist/stop_request.h"

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
/// How long nobody may read the last output of a job that is stopped at once, or that fails, until
/// it is given up.
constexpr milliseconds kPatienceOfStop{300};
constexpr milliseconds kPatienceOfFailure{2000};

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
    if (!ignores_hangup()) {  // blocked, it would come out of the descriptor though it is ignored
      sigaddset(&set_, SIGHUP);
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

bool is_stop(int signal) {
  return std::find(kStopSignals.begin(), kStopSignals.end(), signal) != kStopSignals.end();
}

/// The next of what is waiting in `from`; empty when nothing is.
std::string_view read_waiting(int from, std::array<char, 16384>& buffer) {
  const ssize_t got = read(from, buffer.data(), buffer.size());
  return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

/// Moves what is waiting in `from` to `to` while that has room.
void pass_on(int from, OutputWriter& to) {
  constexpr int kChunksPerTurn = 64;
  std::array<char, 16384> buffer;
  for (int i = 0; i < kChunksPerTurn && to.has_room(); ++i) {
    const std::string_view text = read_waiting(from, buffer);
    if (text.empty()) {
      return;
    }
    to.add(text);
  }
}

bool has_input(int fd) {
  pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&look, 1, 0) > 0;
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
        output_(options.output_fd),
        errors_(options.error_fd),
        ranks_(static_cast<std::size_t>(options.ranks)) {}

  Verdict run();

 private:
  void start();
  void wait_for_something();
  void pass_output_on();
  [[nodiscard]] bool is_all_written() const;
  void finish_output(Verdict& verdict);
  void say(const std::string& line);
  void answer_signals();
  void answer_stop(int signal);
  void suspend();
  void watch(milliseconds elapsed);
  [[nodiscard]] int signal_of_a_rank() const;
  void begin_to_end(milliseconds grace);
  void end_ranks_when_due();
  void send_to_ranks(int signal) const;
  void collect_starter();
  [[nodiscard]] bool all_ranks_gone() const;
  [[nodiscard]] bool all_ranks_run() const;
  [[nodiscard]] Verdict verdict() const;
  [[nodiscard]] std::int64_t steps_finished_by_all() const;

  SupervisorOptions options_;
  Signals signals_;
  LaunchFolder folder_;
  Descriptor output_pipe_;
  Descriptor error_pipe_;
  OutputWriter output_;
  OutputWriter errors_;
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
  folder_.launcher().ignores_hangup = ignores_hangup() ? 1 : 0;
  starter_output_.emplace(pipe_ends[0]);
  const Descriptor write_end(pipe_ends[1]);
  if (options_.mpirun.empty()) {
    const RankStarterRequest request{.command = options_.command,
                                     .ranks_per_node = options_.ranks,
                                     .nodes = options_.nodes,
                                     .node_rank = options_.node_rank,
                                     .folder = folder_.path(),
                                     .cores = available_cores(),
                                     .terminal_columns = terminal_columns(options_.output_fd),
                                     .place = options_.place};
    starter_ = start_ranks(request, environment_list(), write_end.get());
    return;
  }
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
  constexpr int kNoDescriptor = -1;  // poll leaves it out
  if (!output_.has_room()) {
    events[1].fd = kNoDescriptor;
  }
  if (!errors_.has_room()) {
    events[2].fd = kNoDescriptor;
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
  pass_on(output_pipe_.get(), output_);
  pass_on(error_pipe_.get(), errors_);
  if (starter_output_->get() >= 0) {
    std::array<char, 16384> buffer;
    for (std::string_view text = read_waiting(starter_output_->get(), buffer); !text.empty();
         text = read_waiting(starter_output_->get(), buffer)) {
      starter_text_ += text;
    }
  }
}

bool Supervisor::is_all_written() const {
  return output_.waiting_bytes() + errors_.waiting_bytes() == 0 && !has_input(output_pipe_.get()) &&
         !has_input(error_pipe_.get());
}

/// The ranks are gone. What they wrote waits for its reader as long as it takes after a success,
/// and otherwise while somebody reads.
void Supervisor::finish_output(Verdict& verdict) {
  constexpr milliseconds kTurn{20};
  const milliseconds patience = stops_at_once_ ? kPatienceOfStop : kPatienceOfFailure;
  std::size_t written = 0;
  auto last_progress = Clock::now();
  for (pass_output_on(); !is_all_written(); pass_output_on()) {
    const OutputWriter& waited_for = output_.waiting_bytes() > 0 ? output_ : errors_;
    [[maybe_unused]] const bool is_written = waited_for.wait_until_written(kTurn);
    const auto now = Clock::now();
    if (const std::size_t more = output_.written_bytes() + errors_.written_bytes();
        more != written) {
      written = more;
      last_progress = now;
    }
    const int signal = signals_.next();
    if (signal == SIGTSTP) {
      suspend();
    } else if (is_stop(signal)) {
      verdict.exit_code = verdict.exit_code == 0 ? 128 + signal : verdict.exit_code;
      return;
    }
    if (verdict.exit_code == 0 || now - last_progress < patience) {
      continue;
    }
    const std::string loss =
        fmt::format("{} bytes of output were given up, because nobody reads them",
                    output_.waiting_bytes() + errors_.waiting_bytes());
    if (!verdict.error_lines.empty()) {
      verdict.error_lines.back() += ". " + loss;
    } else if (!stops_at_once_) {
      say(loss);
      [[maybe_unused]] const bool is_said = errors_.wait_until_written(kPatienceOfStop);
    }
    return;
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

/// A line for the user that is no error.
void Supervisor::say(const std::string& line) { errors_.add("longhaul: " + line + '\n'); }

void Supervisor::answer_signals() {
  while (const int signal = signals_.next()) {
    if (is_stop(signal)) {
      answer_stop(signal);
    } else if (signal == SIGTSTP) {
      suspend();
    }
  }
}

void Supervisor::answer_stop(int signal) {
  const auto now = Clock::now();
  const bool is_first = first_stop_signal_ == 0;
  // Shell and terminal each send a SIGHUP: a further one says nothing new.
  if (kill_at_ || (!is_first && (signal == SIGHUP || now - last_stop_ < kSameWish))) {
    return;
  }
  last_stop_ = now;
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
  say("stopping after this step and its checkpoint (once more: stops at once)");
}

/// The signal that some rank has got, or 0.
int Supervisor::signal_of_a_rank() const {
  for (std::int64_t rank = 0; rank < options_.ranks; ++rank) {
    if (const int signal = folder_.rank(rank).stop_signal; signal != 0) {
      return signal;
    }
  }
  return 0;
}

void Supervisor::watch(milliseconds elapsed) {
  const int signal = signal_of_a_rank();  // first: a death that made mpirun send it is seen below
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
  // Somebody signalled a rank: the whole job stops. While a rank is missing it may have been mpirun,
  // which ends all when one has died, and then says so.
  if (signal != 0 && first_stop_signal_ == 0 && all_ranks_run()) {
    answer_stop(signal);
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

bool Supervisor::all_ranks_run() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankWatch& rank) { return rank.process() && !rank.has_ended(); });
}

Verdict Supervisor::verdict() const {
  if (stops_at_once_) {
    return {.exit_code = 128 + first_stop_signal_, .error_lines = {}};
  }
  std::vector<RankEnd> ends;
  for (std::int64_t rank = 0; rank < options_.ranks; ++rank) {
    const RankPage& page = folder_.rank(rank);
    const RankWatch& watched = ranks_[static_cast<std::size_t>(rank)];
    const std::int64_t world_rank = options_.node_rank * options_.ranks + rank;
    ends.push_back({.rank = world_rank,
                    .place = rank_place(page, world_rank),
                    .outcome = page.outcome,
                    .exit_code = page.exit_code,
                    .outcome_ns = page.outcome_ns,
                    .lines = recorded_lines(page),
                    .died_ns = watched.died_ns(),
                    .has_come_up = watched.process().has_value(),
                    .stuck = watched.stuck()});
  }
  StarterEnd starter{.name = options_.mpirun.empty() ? "start" : "mpirun",
                     .status = starter_status_.value_or(0),
                     .output = {}};
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
  Verdict end = verdict();
  finish_output(end);
  return end;
}

}  // namespace

Verdict supervise(const SupervisorOptions& options) { return Supervisor(options).run(); }

}  // namespace longhaul::dist
