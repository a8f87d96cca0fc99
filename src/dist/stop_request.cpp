#include "dist/stop_request.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace longhaul::dist {
namespace {

/// What a signal handler can reach; lock-free atomics only.
struct HandlerState {
  std::atomic<int> count{0};
  std::atomic<int> first_signal{0};
  std::atomic<std::int64_t> last_ms{0};
  std::atomic<bool> may_finish_step{false};
  std::atomic<const LauncherPage*> launcher{nullptr};
  std::atomic<RankPage*> mine{nullptr};
};

// A handler has no argument of ours, so its state is global.
HandlerState state;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

/// Signals closer together than this are one wish: some tools signal a process and then its group.
constexpr std::int64_t kSameWishMs = 100;

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1000} + now.tv_nsec / 1'000'000;
}

void on_signal(int signal) {
  const std::int64_t now = now_ms();
  if (state.count.load() > 0 && now - state.last_ms.load() < kSameWishMs) {
    return;
  }
  if (signal == SIGHUP && state.count.load() > 0) {
    return;  // shell and terminal each send one, and nobody is there to be impatient
  }
  state.last_ms = now;
  int none = 0;
  state.first_signal.compare_exchange_strong(none, signal);
  const int count = state.count.fetch_add(1) + 1;
  RankPage* mine = state.mine.load();
  if (mine != nullptr) {
    mine->stop_signal = signal;
    return;
  }
  if (count > 1 || !state.may_finish_step.load()) {
    _exit(128 + state.first_signal.load());
  }
}

}  // namespace

bool ignores_hangup() {
  struct sigaction now {};
  return sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void install_stop_handlers(const LauncherPage* launcher, RankPage* mine) {
  state.launcher = launcher;
  state.mine = mine;
  if (launcher != nullptr && launcher->ignores_hangup != 0) {
    std::signal(SIGHUP, SIG_IGN);  // mpirun starts ranks with the default action
  }
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : kStopSignals) {
    if (signal != SIGHUP || !ignores_hangup()) {
      sigaction(signal, &action, nullptr);
    }
    sigaddset(&handled, signal);
  }
  pthread_sigmask(SIG_UNBLOCK, &handled,
                  nullptr);  // a launcher may have started us with these blocked
}

void ignore_stop_signals() {
  for (const int signal : kStopSignals) {
    std::signal(signal, SIG_IGN);
  }
  state.mine = nullptr;
  state.launcher = nullptr;
}

StopRequest stop_requested() {
  StopRequest request{.count = state.count, .signal = state.first_signal};
  if (const LauncherPage* launcher = state.launcher; launcher != nullptr) {
    const int asked = launcher->stop_requests;
    if (asked > 0) {
      return {.count = asked, .signal = launcher->stop_signal};
    }
    request.count =
        std::min(request.count, 1);  // a whole group may be signalled, launcher included
  }
  return request;
}

void first_step_has_ended() { state.may_finish_step = true; }

}  // namespace longhaul::dist
