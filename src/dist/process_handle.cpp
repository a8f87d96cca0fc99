#include "dist/process_handle.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>
#include <utility>

namespace longhaul::dist {
namespace {

/// The state letter of /proc/PID/stat (R, S, D, T, Z …), or 0 when there is no such process.
char process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything, also parentheses
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid) {
  descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  was_missing_ = descriptor_ < 0 && (errno == ESRCH || errno == EINVAL);
}

ProcessHandle::ProcessHandle(ProcessHandle&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      was_missing_(std::exchange(other.was_missing_, true)) {}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(was_missing_, other.was_missing_);
  return *this;
}

ProcessHandle::~ProcessHandle() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

bool ProcessHandle::is_alive() const {
  if (was_missing_) {
    return false;
  }
  if (descriptor_ >= 0) {
    pollfd look{.fd = descriptor_, .events = POLLIN, .revents = 0};
    return poll(&look, 1, 0) == 0;
  }
  const char state = process_state(pid_);
  return state != '\0' && state != 'Z' && state != 'X';
}

bool ProcessHandle::is_stopped() const {
  const char state = process_state(pid_);
  return is_alive() && (state == 'T' || state == 't');
}

void ProcessHandle::send(int signal) const {
  if (was_missing_) {
    return;
  }
  if (descriptor_ >= 0) {
    syscall(SYS_pidfd_send_signal, descriptor_, signal, nullptr, 0);
  } else if (is_alive()) {
    kill(pid_, signal);
  }
}

}  // namespace longhaul::dist
