#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "dist/stop_request.h"

namespace longhaul::cli {
namespace {

std::atomic<int> pending_signal{0};  // NOLINT: what a signal handler can reach
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void take_signal(int signal) {
  const int earlier = pending_signal.exchange(signal);
  if (earlier != 0 && signal != SIGHUP) {  // shell and terminal each send a SIGHUP
    ::_exit(128 + signal);
  }
}

void set_handler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read at the prompt is to return
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  if (!dist::ignores_hangup()) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
}

}  // namespace

InterruptGuard::InterruptGuard() { set_handler(take_signal); }
InterruptGuard::~InterruptGuard() { set_handler(SIG_DFL); }
int InterruptGuard::pending() { return pending_signal.load(); }
void InterruptGuard::clear() { pending_signal.store(0); }

}  // namespace longhaul::cli
