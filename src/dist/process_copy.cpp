#include "dist/process_copy.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>

namespace longhaul::dist {
namespace {

constexpr std::uint64_t kSecret = 0x5eed0f1eaf5eed0fULL;

/// Lets anybody of ours read it, says so, and waits to be ended.
[[noreturn]] void be_read(int ready_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const char ready = 1;
  [[maybe_unused]] const ssize_t written = write(ready_fd, &ready, 1);
  pause();
  _exit(1);
}

/// Exit status 0 when `address` of process `owner` can be read.
[[noreturn]] void read_other(pid_t owner, const std::uint64_t* address) {
  std::uint64_t copy = 0;
  const iovec here{.iov_base = &copy, .iov_len = sizeof(copy)};
  const iovec there{.iov_base = const_cast<std::uint64_t*>(address), .iov_len = sizeof(copy)};
  const ssize_t got = process_vm_readv(owner, &here, 1, &there, 1, 0);
  _exit(got == static_cast<ssize_t>(sizeof(copy)) && copy == kSecret ? 0 : 1);
}

}  // namespace

bool can_copy_between_processes() {
  const std::uint64_t secret = kSecret;  // both processes inherit it at this address
  std::array<int, 2> ready{};
  if (pipe(ready.data()) != 0) {
    return false;
  }
  bool can_copy = false;
  const pid_t owner = fork();
  if (owner == 0) {
    be_read(ready[1]);
  }
  close(ready[1]);
  char byte = 0;
  if (owner > 0 && read(ready[0], &byte, 1) == 1) {
    const pid_t reader = fork();
    if (reader == 0) {
      read_other(owner, &secret);
    }
    int status = 1;
    can_copy = reader > 0 && waitpid(reader, &status, 0) == reader && status == 0;
  }
  if (owner > 0) {
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
  }
  close(ready[0]);
  return can_copy;
}

}  // namespace longhaul::dist
