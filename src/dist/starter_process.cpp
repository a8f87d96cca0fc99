#include "dist/starter_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "dist/stop_request.h"

namespace longhaul::dist {

void leave_launchers_session(int output_fd) {
  setsid();
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output_fd, STDOUT_FILENO);
  dup2(output_fd, STDERR_FILENO);
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : kStopSignals) {
    sigaddset(&blocked, signal);
  }
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

}  // namespace longhaul::dist
